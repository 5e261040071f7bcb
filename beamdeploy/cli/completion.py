"""`beamdeploy completion`"""

from __future__ import annotations

import click


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> int:
    """Print what makes SHELL complete commands, options, recipes, hosts and rules.

    \b
    bash: echo 'source <(beamdeploy completion bash)' >> ~/.bashrc
    zsh:  echo 'source <(beamdeploy completion zsh)' >> ~/.zshrc
    fish: beamdeploy completion fish > ~/.config/fish/completions/beamdeploy.fish
    """
    from click.shell_completion import get_completion_class

    complete = get_completion_class(shell)
    assert complete is not None  # click has all three
    script = complete(ctx.find_root().command, {}, "beamdeploy", "_BEAMDEPLOY_COMPLETE")
    click.echo(script.source_template % script.source_vars())  # source() of bash would run bash to ask its version
    return 0
