"""`beamdeploy init`"""

from __future__ import annotations

import click

from beamdeploy.cli import options
from beamdeploy.cli.ask import on_terminal


@click.command()
@click.argument("folder", metavar="[DIR]", default=".", type=click.Path(file_okay=False))
@click.option("--model", metavar="NAME", help="Whose shipped recipe to begin with.  [default: beam]")
@click.option("--gpu", metavar="FAMILY", help="The GPUs of a server, such as B300.")
@click.option("--count", type=click.IntRange(min=1), help="How many of them serve the model.")
@click.option(
    "--host", "hosts", multiple=True, metavar="[USER@]HOST[:PORT]", help="A server; may be given several times."
)
@options.model_dir
def init(
    folder: str,
    model: str | None,
    gpu: str | None,
    count: int | None,
    hosts: tuple[str, ...],
    model_dir: str | None,
) -> int:
    """Write a commented recipe and inventory into DIR, and the schemas that an editor checks them with.

    Asks on a terminal for what no option says. A file that is already there is left as it is, and named.
    """
    from beamdeploy.cli import starter

    shipped = starter.shipped(model or _asked("Model", "beam", model is None))
    start = starter.Start(
        recipe=shipped,
        gpu=gpu or _asked("GPU family of a server", shipped.gpu, gpu is None),
        count=count or int(_asked("GPUs that serve the model", str(shipped.count), count is None)),
        hosts=hosts or tuple(_asked("Servers (user@host, with blanks between)", "", not hosts).split()),
        model_dir=model_dir or _asked("Folder of the weights there", f"/srv/models/{shipped.name}", model_dir is None),
    )
    for path, text in starter.files(start).items():
        written = starter.write(folder, path, text)
        click.echo(f"{'wrote' if written else 'kept '} {click.format_filename(f'{folder}/{path}')}")
    return 0


def _asked(question: str, default: str, wanted: bool) -> str:
    if not wanted or not on_terminal():
        return default
    answer: str = click.prompt(question, default=default, err=True, show_default=bool(default))
    return answer
