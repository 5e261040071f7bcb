"""The key that a server asks for, where its recipe has one among its secrets: read on the host, and never shown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from beamdeploy.engines.traits import described, traits
from beamdeploy.errors import HostError, Problem
from beamdeploy.remote import Looker

READ = """
[ ! -e "$1" ] || sed -n "s/^$2=//p" "$1"
"""
"""The value of variable $2 in the env file $1, which the container got; nothing where there is no such file."""

Json = Mapping[str, Any]
_SENDABLE = re.compile(r"[!-~]([ -~]*[!-~])?")
UNSENDABLE = "no client can send it: a header takes printable ASCII without a blank at an edge"


def sendable(value: str) -> bool:
    """Whether a key can stand in the header of a request, and arrive as it is."""
    return _SENDABLE.fullmatch(value) is not None


def variable(recipe: Json) -> str:
    """The secret that its engine takes as the key ("VLLM_API_KEY"); "": it asks for none."""
    engine = str(recipe.get("engine", {}).get("name", ""))
    known = traits(engine) if engine in described() else None
    secrets = recipe.get("container", {}).get("secrets", {})
    return next((name for name in (known.key_env if known else ()) if name in secrets), "")


def client_variable(recipe: Json) -> str:
    """The variable of this machine that holds the key, or should; "": the server asks for none."""
    name = variable(recipe)
    source: Json = recipe["container"]["secrets"][name] if name else {}
    return str(source.get("env", name))


def key(session: Looker, recipe: Json) -> str:
    """The key of a recipe's deployment on this host; "": it asks for none. HostError: it cannot be read or sent."""
    name = variable(recipe)
    if not name:
        return ""
    place = f"{session.host.state_folder}/{recipe['name']}/secrets.env"
    result = session.script(READ, (place, name), timeout=60)
    if not result.ok:
        what = f"the key of the server ({name}) cannot be read on the host: {result.err.strip()[-200:]}"
        raise HostError(Problem(what, "Ask as the user that deployed it.", session.host.name))
    value = result.out.rstrip("\r\n")
    if value and not sendable(value):
        # not a character of it is said
        remedy = f"Give container.secrets.{name} another value, and apply."
        raise HostError(Problem(f"the key of the server ({name}): {UNSENDABLE}", remedy, session.host.name))
    return value


def header(value: str) -> Mapping[str, str]:
    """The header of a request with this key; none for ""."""
    return {"Authorization": f"Bearer {value}"} if value else {}
