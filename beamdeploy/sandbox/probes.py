"""What can be asked inside an image before the long load, under the names that the real packages have.

Sources: tokenspeed-smg 1.10.1 smg_rs and launch_router.py; TokenSpeed 0.1.1 runtime/utils/server_args.py.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from beamdeploy.sandbox.arguments import ArgumentsRefused, Flag, add_flags, flags, parse


def catalog() -> tuple[Flag, ...]:
    """The flags of this image."""
    return flags(os.environ.get("BEAMDEPLOY_STANDIN_CATALOG", "beam"))


def _choices(name: str) -> list[str]:
    return [choice for flag in catalog() if flag.names[0] == name for choice in flag.choices]


def get_available_tool_call_parsers() -> list[str]:
    """The gateway's tool-call parsers."""
    return _choices("--tool-call-parser")


def get_available_reasoning_parsers() -> list[str]:
    """The gateway's reasoning parsers."""
    return _choices("--reasoning-parser")


def parse_router_args(words: Sequence[str]) -> argparse.Namespace:
    """Parse the gateway's words; ends the process with 2 and argparse's message where they are wrong."""
    try:
        return argparse.Namespace(**parse("gateway", words, catalog()))
    except ArgumentsRefused as refused:
        sys.stderr.write("\n".join(refused.lines) + "\n")
        sys.exit(refused.status)


class ServerArgs:
    """The engine's arguments."""

    @staticmethod
    def add_cli_args(parser: argparse.ArgumentParser) -> None:
        """Add every flag of the engine."""
        add_flags(parser, "engine", catalog())
        parser.add_argument("--model", "--model-path")
