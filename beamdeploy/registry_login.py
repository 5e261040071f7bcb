"""The user's own logins to registries, as `docker login` left them."""

from __future__ import annotations

import base64
import binascii
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from beamdeploy.errors import InputError, Problem
from beamdeploy.inventory import Host
from beamdeploy.regular import text_of

HUB = "docker.io"
_HUB_KEYS = ("https://index.docker.io/v1/", "index.docker.io", "docker.io", "registry-1.docker.io")
_IDENTITY = "<token>"


@dataclass(frozen=True)
class Login:
    """A user's password, or (`user` empty) an identity token that is exchanged for an access token."""

    user: str
    secret: str

    def __repr__(self) -> str:
        return f"Login({self.user!r}, …)"

    @property
    def basic(self) -> str:
        """The value of an Authorization header."""
        return "Basic " + base64.b64encode(f"{self.user}:{self.secret}".encode()).decode()


def login(registry: str, environ: Mapping[str, str]) -> Login | None:
    """The login to a registry (`ghcr.io`, `docker.io`, `10.0.0.1:5000`); None: the user has none.

    In docker's own order: the registry's helper, then the store of all, then the file. InputError: a helper fails.
    """
    file = Path(environ.get("DOCKER_CONFIG") or Path(environ.get("HOME") or "~").expanduser() / ".docker")
    held = _config(file / "config.json")
    keys = _HUB_KEYS if registry == HUB else (registry, f"https://{registry}", f"https://{registry}/v1/")
    helpers = held.get("credHelpers")
    named = [helpers[key] for key in keys if isinstance(helpers, dict) and isinstance(helpers.get(key), str)]
    for helper in [*named[:1], *([held["credsStore"]] if isinstance(held.get("credsStore"), str) else [])]:
        found = _from_helper(helper, keys[0])
        if found is not None:
            return found
    auths = held.get("auths")
    entries = [auths[key] for key in keys if isinstance(auths, dict) and isinstance(auths.get(key), dict)]
    return next((found for entry in entries if (found := _from_entry(entry)) is not None), None)


def _config(file: Path) -> Mapping[str, Any]:
    try:
        held = json.loads(text_of(file))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        remedy = "mend it, or set DOCKER_CONFIG to another folder"
        raise InputError([Problem(f"docker's configuration cannot be read: {error}", remedy, str(file))]) from None
    return held if isinstance(held, dict) else {}


def _from_entry(entry: Mapping[str, Any]) -> Login | None:
    if isinstance(entry.get("identitytoken"), str) and entry["identitytoken"]:
        return Login("", entry["identitytoken"])
    if isinstance(entry.get("username"), str) and isinstance(entry.get("password"), str):
        return Login(entry["username"], entry["password"])
    try:
        user, colon, secret = base64.b64decode(str(entry.get("auth") or "")).decode().partition(":")
    except (binascii.Error, ValueError):
        return None
    return Login(user, secret.rstrip("\0")) if colon else None


def _from_helper(helper: str, registry: str) -> Login | None:
    """What `docker-credential-HELPER get` says; its secret is never in a word."""
    # imported here: only who has a helper needs a process
    from beamdeploy.remote.local import LocalSession

    script = (
        'command -v "docker-credential-$1" >/dev/null || exit 127; printf "%s\\n" "$2" | "docker-credential-$1" get'
    )
    session = LocalSession(Host(os.uname().nodename, connection="local"))
    done = session.script(script, (helper, registry), timeout=60)
    if not done.ok and "not found" in (done.out + done.err).lower() and done.exit != 127:
        return None
    try:
        held: Any = json.loads(done.out) if done.ok else None
        found = (str(held["Username"]), str(held["Secret"]))
    except (ValueError, KeyError, TypeError):
        why = "it is not installed" if done.exit == 127 else (done.err or "it gave no login").strip()[-200:]
        remedy = f"see that docker-credential-{helper} works, or log in again: docker login {registry}"
        what = f"docker's credential helper {helper} gave no login to {registry}: {why}"
        raise InputError([Problem(what, remedy, "registry")]) from None
    return Login("", found[1]) if found[0] == _IDENTITY else Login(*found)
