"""The questions: asked on a terminal only, with the plan in sight."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from beamdeploy.errors import InputError, Problem

if TYPE_CHECKING:
    from beamdeploy.outcome import HostReport
    from beamdeploy.report import Progress

Confirm = Callable[[tuple["HostReport", ...]], bool]


def on_terminal() -> bool:
    """Whether somebody can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirm_apply(progress: Progress, *, yes: bool) -> Confirm:
    """Show the plans; ask when a running server would be stopped and somebody is there to answer."""

    def confirm(reports: tuple[HostReport, ...]) -> bool:
        from beamdeploy.report import show_plans

        with progress.paused():
            show_plans(reports)
            stops = [report.name for report in reports for step in report.plan or () if step.what == "stop"]
            return not stops or yes or not on_terminal() or _asked(f"Stop the running server on {', '.join(stops)}?")

    return confirm


def confirm_destroy(progress: Progress, *, yes: bool) -> Callable[[str, tuple[HostReport, ...]], bool]:
    """Ask before a deployment is taken down. InputError: nobody is there, and -y was not given."""

    def confirm(name: str, reports: tuple[HostReport, ...]) -> bool:
        from beamdeploy.report import show_plans

        with progress.paused():
            show_plans(reports)
            return yes or _needed("destroy", f"Take down {name}?")

    return confirm


def confirm_prune(progress: Progress, *, yes: bool) -> Confirm:
    """Ask before anything is removed. InputError: nobody is there, and -y was not given."""

    def confirm(reports: tuple[HostReport, ...]) -> bool:
        from beamdeploy.report import show_plans

        with progress.paused():
            show_plans(reports)
            return yes or _needed("prune", "Remove these?")

    return confirm


def _needed(command: str, question: str) -> bool:
    if not on_terminal():
        raise InputError([Problem(f"{command} asks, and there is no terminal to ask on", "Add -y.")])
    return _asked(question)


def _asked(question: str) -> bool:
    return click.confirm(question, default=False, err=True)
