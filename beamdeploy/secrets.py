"""Secrets: named in the recipe, written to a file on the host that its user alone may read, and seen nowhere else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from beamdeploy.apikey import UNSENDABLE, sendable, variable
from beamdeploy.errors import HostError, InputError, Problem
from beamdeploy.recipe import Recipe
from beamdeploy.regular import text_of
from beamdeploy.remote import Looker, Session

if TYPE_CHECKING:
    from beamdeploy.look.facts import Secrets

# $1 folder; stdin: lines NAME=VALUE; then $2… pairs of NAME and a file of the host.
_ENV = """
umask 077
dir=$1; shift
given=$(cat)
all() {
  [ -z "$given" ] || printf '%s\\n' "$given"
  while [ $# -gt 1 ]; do
    [ -r "$2" ] || { echo "$2 cannot be read" >&2; exit 3; }
    printf '%s=%s\\n' "$1" "$(cat "$2")"
    shift 2
  done
}
"""
_WRITE = (
    _ENV
    + """
mkdir -p "$dir" && text=$(all "$@") && printf '%s\\n' "$text" > "$dir/secrets.new" &&
key=$(od -An -tx1 -N16 /dev/urandom | tr -d ' \\n') &&
printf '%s %s\\n' "$key" "$(printf '%s:%s' "$key" "$text" | sha256sum | cut -c 1-64)" > "$dir/secrets.sum" &&
mv "$dir/secrets.new" "$dir/secrets.env"
"""
)
COMPARE = (
    _ENV
    + """
[ -r "$dir/secrets.env" ] && read -r key sum < "$dir/secrets.sum" || { echo absent; exit; }
text=$(all "$@") || exit 3
[ "$(printf '%s:%s' "$key" "$text" | sha256sum | cut -c 1-64)" = "$sum" ] && echo same || echo rotated
[ ! -r "$dir/secrets.used" ] || cat "$dir/secrets.used"
"""
)
_USED = 'umask 077; printf \'%s\\n\' "$2" > "$1/secrets.used"'
_FORGET = 'rm -f "$1/secrets.env" "$1/secrets.sum" "$1/secrets.new" "$1/secrets.used"'


def given(recipe: Recipe, environ: Mapping[str, str]) -> str:
    """The secrets that come from here, a line NAME=VALUE each. InputError: one is not there, or cannot be used."""
    problems: list[Problem] = []
    lines = [f"{name}={value}\n" for name, value in _values(recipe, environ, problems)]
    if problems:
        raise InputError(problems)
    return "".join(lines)


def compare(session: Looker, recipe: Recipe, text: str) -> Secrets:
    """What the host has against `text` and the host's own files. HostError: it cannot be told."""
    from beamdeploy.look.facts import Secrets

    result = session.script(COMPARE, _arguments(session, recipe), timeout=60, stdin=text.encode())
    state, used_by = [*result.out.split(), "", ""][:2]
    if not result.ok or state not in ("same", "rotated", "absent"):
        raise _failure(session, result.err)
    return Secrets(state, used_by or None)


def write(session: Session, recipe: Recipe, text: str) -> None:
    """Write the env file of the deployment, mode 0600, whole or not at all. HostError: the host would not."""
    result = session.script(_WRITE, _arguments(session, recipe), timeout=60, stdin=text.encode())
    if not result.ok:
        raise _failure(session, result.err)


def used(session: Session, name: str, container: str) -> None:
    """Write down which container was made with the present env file. HostError: the host would not."""
    result = session.script(_USED, (f"{session.host.state_folder}/{name}", container), timeout=60)
    if not result.ok:
        raise _failure(session, result.err)


def forget(session: Session, name: str) -> tuple[Problem, ...]:
    """Remove the env file; fine where there is none. A warning if the host would not."""
    try:
        result = session.script(_FORGET, (f"{session.host.state_folder}/{name}",), timeout=60)
    except HostError as error:
        return error.problems
    if result.ok:
        return ()
    what = f"the env file of {name} could not be removed: {result.err.strip()[-200:]}"
    remedy = f"It lies in {session.host.state_folder}/{name}: remove it by hand."
    return (Problem(what, remedy, f"{session.host.name}: secrets", level="warning"),)


def _values(recipe: Recipe, environ: Mapping[str, str], problems: list[Problem]) -> Iterator[tuple[str, str]]:
    key = variable(recipe.source)
    for name, source in recipe.container.secrets.items():
        value = _value(name, source, recipe.file, environ, problems)
        if value is not None and name == key and not sendable(value):
            what = f"container.secrets.{name} is the key of the server, and {UNSENDABLE}"
            problems.append(
                Problem(what, "Make another key, as by openssl rand -hex 32.", file=recipe.file, rule="BD052")
            )
        elif value is not None:
            yield name, value


def _value(
    name: str, source: Mapping[str, str], file: str, environ: Mapping[str, str], problems: list[Problem]
) -> str | None:
    """None: it lies on the host, or it is a problem."""
    kind, where = next(iter(source.items()))
    if kind == "host_file":
        return None
    value = environ.get(where) if kind == "env" else _text(Path(file).parent / Path(where).expanduser())
    if value is None:
        what = f"container.secrets.{name}: there is no {'variable' if kind == 'env' else 'readable file'} {where} here"
        problems.append(Problem(what, "Set it where beamdeploy runs.", file=file, rule="BD052"))
    elif "\n" in value or not value or any("\ud800" <= letter <= "\udfff" for letter in value):
        what = f"container.secrets.{name}: the value is empty, has several lines or is no UTF-8"
        problems.append(Problem(what, "docker's env file takes one line a variable.", file=file, rule="BD052"))
        return None
    return value


def _text(path: Path) -> str | None:
    try:
        return text_of(path).rstrip("\r\n")
    except (OSError, ValueError):
        return None


def _arguments(session: Looker, recipe: Recipe) -> tuple[str, ...]:
    there = [(name, source["host_file"]) for name, source in recipe.container.secrets.items() if "host_file" in source]
    return (f"{session.host.state_folder}/{recipe.name}", *(word for pair in there for word in pair))


def _failure(session: Looker, said: str) -> HostError:
    what = f"the secrets could not be read or written on the host: {said.strip()[-200:]}"
    return HostError(Problem(what, "Check container.secrets and state_dir.", f"{session.host.name}: secrets"))
