"""Where an ssh connection to a host goes: the inventory's values over those of the user's ssh configuration."""

from __future__ import annotations

import getpass
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from beamdeploy.errors import UNREACHABLE, HostError, Problem
from beamdeploy.inventory import Host
from beamdeploy.regular import text_of
from beamdeploy.remote.ssh_files import must_be_files

SYSTEM_CONFIG = "/etc/ssh/ssh_config"
_PATIENCE = 30
"""Seconds for the client to read its configuration."""


@dataclass(frozen=True)
class Target:
    """One ssh server. `host_key_name`: the name under which known hosts files list it ("host" or "[host]:port").

    `known_hosts`: the files that are looked through; a new key is stored in the first. `stated_key`: the inventory's
    `identity_file`. `identity_files`: those of the ssh configuration or its defaults, which need not exist.
    `proxy_jump`: the bastions, first one first.
    """

    hostname: str
    port: int
    user: str
    host_key_name: str
    known_hosts: tuple[str, ...]
    stated_key: str | None = None
    identity_files: tuple[str, ...] = ()
    identities_only: bool = False
    identity_agent: str | None = None
    proxy_jump: tuple[str, ...] = ()
    proxy_command: str | None = None

    def __str__(self) -> str:
        return f"{self.user}@{self.hostname}" + ("" if self.port == 22 else f":{self.port}")


def resolve(host: Host, config_lines: Iterable[str]) -> Target:
    """The target of a host; `config_lines` are "keyword value", as `ssh -G` prints them."""
    settings = _settings(config_lines)
    hostname = _one(settings, "hostname") or host.address or host.name
    port = host.port or int(_one(settings, "port") or 22)
    user = host.user or _one(settings, "user") or getpass.getuser()
    alias = _one(settings, "hostkeyalias")
    jump = host.proxy_jump or _one(settings, "proxyjump")
    command = None if jump else _one(settings, "proxycommand")
    return Target(
        hostname=hostname,
        port=port,
        user=user,
        host_key_name=alias or (hostname if port == 22 else f"[{hostname}]:{port}"),
        known_hosts=_known_hosts(host, settings),
        stated_key=_path(host.identity_file) if host.identity_file else None,
        identity_files=tuple(map(_path, settings.get("identityfile", _DEFAULT_KEYS))),
        identities_only=_one(settings, "identitiesonly") == "yes",
        identity_agent=_one(settings, "identityagent"),
        proxy_jump=_hops(jump, {host.name, host.address, hostname}, port),
        proxy_command=command and _expanded(command, {"h": hostname, "p": str(port), "r": user, "n": host.name}),
    )


_DEFAULT_KEYS = ("~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa")


def _settings(lines: Iterable[str]) -> dict[str, list[str]]:
    settings: dict[str, list[str]] = {}
    for line in lines:
        keyword, _, value = line.strip().partition(" ")
        if value:
            settings.setdefault(keyword.lower(), []).append(value)
    return settings


def _one(settings: dict[str, list[str]], keyword: str) -> str | None:
    value = settings.get(keyword, ["none"])[0]
    return None if value == "none" else value


def _known_hosts(host: Host, settings: dict[str, list[str]]) -> tuple[str, ...]:
    if host.known_hosts:
        return (_path(host.known_hosts),)
    user = _one(settings, "userknownhostsfile") or "~/.ssh/known_hosts"
    system = _one(settings, "globalknownhostsfile") or "/etc/ssh/ssh_known_hosts"
    return tuple(map(_path, (*user.split(), *system.split())))


def _path(text: str) -> str:
    return os.path.expanduser(text.strip('"'))


def _hops(jump: str | None, names: set[str | None], port: int) -> tuple[str, ...]:
    """The bastions of "a,b"; like ssh, a host that is its own bastion (`Host *`) needs none."""
    hops = tuple((jump or "").split(",")) if jump and jump != "none" else ()
    places = [parse_hop(hop)[1:] for hop in hops]
    return () if any(address in names and at in (None, port) for address, at in places) else hops


def parse_hop(hop: str) -> tuple[str | None, str, int | None]:
    """User, address and port of "[ssh://][user@]address[:port]"; IPv6 addresses with a port stand in brackets."""
    user, _, place = hop.strip().removeprefix("ssh://").rpartition("@")
    if place.startswith("["):
        address, _, port = place[1:].partition("]")
        port = port.removeprefix(":")
    elif place.count(":") == 1:
        address, _, port = place.partition(":")
    else:
        address, port = place, ""
    return user or None, address, int(port) if port.isdecimal() else None


def _expanded(command: str, tokens: dict[str, str]) -> str:
    parts = command.split("%%")
    for token, value in tokens.items():
        parts = [part.replace(f"%{token}", value) for part in parts]
    return "%".join(parts)


def config_lines(host: Host) -> list[str]:
    """What the ssh configuration says of this host: from `ssh -G` where there is an OpenSSH client.

    HostError: the configuration is wrong or no file, or it needs the client and there is none.
    """
    stated = os.environ.get("BEAMDEPLOY_SSH_CONFIG")
    files = [Path(stated)] if stated else [Path("~/.ssh/config").expanduser(), Path(SYSTEM_CONFIG)]
    for file in files:
        try:
            must_be_files(file)
        except OSError as error:
            raise _wrong_config(host, f"{error.filename}: {error.strerror}") from error
    if not any(file.is_file() for file in files) and not stated:
        return []
    if shutil.which("ssh"):
        return _ask_client(host, stated)
    return [line for file in files for line in read_without_client(file, host)]


def _ask_client(host: Host, file: str | None) -> list[str]:
    words = ["ssh", "-G", *(("-F", file) if file else ())]
    words += [*(("-l", host.user) if host.user else ()), *(("-p", str(host.port)) if host.port else ())]
    alias = host.address or host.name
    words += ["--", alias]
    try:
        asked = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_PATIENCE, check=False
        )
    except subprocess.TimeoutExpired as error:  # of a command in `Match exec`, for one
        raise _wrong_config(host, f"{shlex.join(words)} did not end within {_PATIENCE} s") from error
    if asked.returncode != 0:
        raise _wrong_config(host, asked.stderr.strip() or f"ssh -G {alias} failed")
    return asked.stdout.splitlines()


def _wrong_config(host: Host, what: str) -> HostError:
    remedy = "correct the ssh configuration, or name another one in BEAMDEPLOY_SSH_CONFIG"
    return HostError(Problem(what, remedy, where=f"{host.name}: connect"), exit=UNREACHABLE)


def read_without_client(file: Path, host: Host) -> list[str]:
    """The same lines read by paramiko, which knows no Include. HostError names the line that holds one."""
    if not file.is_file():
        return []
    text = text_of(file, errors="surrogateescape")
    for number, line in enumerate(text.splitlines(), 1):
        keyword = line.strip().replace("=", " ").split(" ")[0].lower()
        if keyword == "include" and str(file) != SYSTEM_CONFIG:
            what = f"{file}:{number}: {line.strip()}: only the OpenSSH client can follow it, and there is no `ssh` here"
            raise _wrong_config(host, what)
    return _read_by_paramiko(text, host)


def _read_by_paramiko(text: str, host: Host) -> list[str]:
    # as a whole and in this order: another thread is importing it, and two that enter a cycle see half a module
    import fabric  # noqa: F401
    from paramiko import SSHConfig

    found: Mapping[str, str | list[str]] = dict(SSHConfig.from_text(text).lookup(host.address or host.name))
    return [
        f"{keyword} {value}"
        for keyword, values in found.items()
        for value in (values if isinstance(values, list) else [values])
    ]
