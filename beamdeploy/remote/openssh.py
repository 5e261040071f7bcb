"""The way to a host in the words of OpenSSH's client, for programs that start it themselves (rsync)."""

from __future__ import annotations

from collections.abc import Iterator

from beamdeploy.inventory import Host
from beamdeploy.remote.ssh_config import Target, config_lines, resolve


def configuration(host: Host, alias: str = "target") -> str:
    """A configuration file in which `alias` is that host, with the same key, known hosts and bastions as a session."""
    return "\n".join(
        (f"Host {alias}", *_lines(resolve(host, config_lines(host))), "Match all", "Include ~/.ssh/config")
    )


def _lines(target: Target) -> Iterator[str]:
    yield f"HostName {target.hostname}"
    yield f"Port {target.port}"
    yield f"User {target.user}"
    yield f"HostKeyAlias {target.host_key_name}"
    yield "StrictHostKeyChecking yes"
    yield "UserKnownHostsFile " + " ".join(f'"{file}"' for file in target.known_hosts)
    yield "BatchMode yes"
    yield "ConnectTimeout 15"
    yield "ServerAliveInterval 15"
    yield "Compression no"
    yield "Ciphers aes128-gcm@openssh.com,aes256-gcm@openssh.com,chacha20-poly1305@openssh.com,aes128-ctr"
    if target.stated_key:
        yield f'IdentityFile "{target.stated_key}"'
        yield "IdentitiesOnly yes"
    if target.proxy_jump:
        yield f"ProxyJump {','.join(target.proxy_jump)}"
    elif target.proxy_command:
        yield f"ProxyCommand {target.proxy_command}"
