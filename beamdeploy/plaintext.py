"""What looks like a secret that somebody wrote down in plain text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_NAME = re.compile(r"(^|_)(TOKEN|PASSWORD|PASSWD|SECRET|API_?KEY|APIKEY|ACCESS_KEY|PRIVATE_KEY|CREDENTIALS?)$")
_VALUE = re.compile(
    r"\b(hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|glpat-[A-Za-z0-9_-]{16,}|AKIA[A-Z0-9]{16}"
    r"|xox[abp]-[A-Za-z0-9-]{10,}|nvapi-[A-Za-z0-9_-]{16,})|://[^/\s:@]+:[^/\s@]+@|-----BEGIN [A-Z ]*PRIVATE KEY"
)


def is_secret(name: str, value: str) -> bool:
    """Whether a variable of the environment looks like one, by its name or its value."""
    return bool(value) and (_NAME.search(name.upper()) is not None or holds_secret(value))


def holds_secret(text: str) -> bool:
    """Whether a text has the form of a known kind of token, or a URL with a password."""
    return _VALUE.search(text) is not None


def secret_variables(words: Sequence[str]) -> Iterator[str]:
    """The names of such variables among words for `docker run`."""
    for option, text in zip(words, (*words[1:], ""), strict=True):
        name, _, value = _variable(option, text).partition("=")
        if is_secret(name, value):
            yield name


def _variable(option: str, following: str) -> str:
    """ "-e", "A=b" → "A=b"; the same for --env A=b, --env=A=b and -eA=b; "" for another option."""
    if option in ("-e", "--env"):
        return following
    if option.startswith("--env="):
        return option.removeprefix("--env=")
    return option[2:].removeprefix("=") if option.startswith("-e") else ""
