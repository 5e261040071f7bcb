"""`beamdeploy sandbox`"""

from __future__ import annotations

import os

import click

from beamdeploy.cli import options

NAME = click.option("--name", metavar="N", help="Which sandbox.  [default: $BEAMDEPLOY_SANDBOX, then 'default']")


@click.group()
def sandbox() -> None:
    """Try recipes without a GPU, a server or Docker: an emulated GPU server on this machine, for `-i sandbox`."""


@sandbox.command()
@click.option("--profile", metavar="PROFILE", help="What it stands for, such as 4xb300 or 8xh200.")
@click.option(
    "--fault", "faults", multiple=True, metavar="FAULT", help="What is wrong there; may be given several times."
)
@NAME
@options.output
def up(profile: str | None, faults: tuple[str, ...], name: str | None, output: str) -> int:
    """Start it, or change what it emulates. `-i sandbox` starts it by itself."""
    from beamdeploy.outcome import HostReport, Report
    from beamdeploy.report import show
    from beamdeploy.sandbox import lifetime

    started = lifetime.up(profile, lifetime.folder_of(name, os.environ), faults)
    wrong = f", with {', '.join(started.faults)}" if started.faults else ""
    summary = f"an emulated {started.profile} server{wrong}: no GPU is used. Inventory: {started.inventory}"
    details = {"profile": started.profile, "faults": list(started.faults), "inventory": str(started.inventory)}
    return show(Report("Sandbox", 0, (HostReport(started.name, "up", 0, summary, details),)), output)


@sandbox.command()
@click.option("--all", "everything", is_flag=True, help="All sandboxes of this user.")
@NAME
@options.output
def down(everything: bool, name: str | None, output: str) -> int:
    """End it with all that runs in it, and remove its folder."""
    from beamdeploy.outcome import HostReport, Report
    from beamdeploy.report import show
    from beamdeploy.sandbox import lifetime

    folders = lifetime.all_of(os.environ) if everything else (lifetime.folder_of(name, os.environ),)
    said = {True: ("down", "ended and removed"), False: ("unchanged", "there is none")}
    reports = tuple(
        HostReport(each.name, said[gone][0], 0, said[gone][1]) for each in folders for gone in [lifetime.down(each)]
    )
    return show(Report("Sandbox", 0, reports), output)


@sandbox.command()
@options.output
def status(output: str) -> int:
    """Say which sandboxes there are, and what each stands for."""
    from beamdeploy.outcome import HostReport, Report
    from beamdeploy.report import show
    from beamdeploy.sandbox import lifetime

    reports = []
    for folder in lifetime.all_of(os.environ):
        found = lifetime.status(folder)
        if found is None:
            reports.append(HostReport(folder.name, "not running", 0, "the next -i sandbox starts it again"))
        else:
            wrong = f", with {', '.join(found.faults)}" if found.faults else ""
            summary = f"an emulated {found.profile} server{wrong}, port {found.port}, pid {found.pid}"
            reports.append(HostReport(folder.name, "up", 0, summary, {"inventory": str(found.inventory)}))
    return show(Report("Sandbox", 0, tuple(reports)), output)


@sandbox.command()
def faults() -> int:
    """List what can be wrong in a sandbox."""
    from beamdeploy.sandbox.profiles import faults as known

    for fault in known().values():
        click.echo(f"{fault.name.ljust(24)}{fault.what}")
    return 0


@sandbox.command()
def profiles() -> int:
    """List the servers that a sandbox can stand for."""
    from beamdeploy.sandbox.profiles import profiles as known

    for profile in known().values():
        click.echo(f"{profile.name.ljust(18)}{profile.count} x {profile.product}, {profile.memory_mib} MiB each")
    return 0
