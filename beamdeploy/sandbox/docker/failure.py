"""How a docker command fails: its text on stderr and its exit code."""

from __future__ import annotations


class Failure(Exception):
    """Ends the command. `out` was printed on stdout before."""

    def __init__(self, text: str, exit: int = 1, out: str = "") -> None:
        self.text = text
        self.exit = exit
        self.out = out
        super().__init__(text)


def daemon(text: str) -> Failure:
    """What the daemon refuses, as the client prints it."""
    return Failure(f"Error response from daemon: {text}")
