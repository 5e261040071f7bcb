"""Authentication by keys, in ssh's order: the stated key, the agent's, the key files. Nothing is ever asked."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from beamdeploy.errors import UNREACHABLE, HostError, Problem
from beamdeploy.regular import must_be, text_of
from beamdeploy.remote.ssh_config import Target

PASSPHRASE = "BEAMDEPLOY_KEY_PASSPHRASE"


@dataclass
class KeyAuth:
    """Paramiko's authentication strategy for one target; remembers what was offered and what could not be."""

    target: Target
    where: str
    offered: list[str] = field(default_factory=list)
    unusable: list[str] = field(default_factory=list)
    remedies: list[str] = field(default_factory=list)

    def authenticate(self, transport: Any) -> None:
        """HostError: no key was accepted; says which were offered for which user."""
        with ExitStack() as agents:
            self._offer_all(transport, self._agent_keys(agents))

    def _offer_all(self, transport: Any, agent: list[Any]) -> None:
        from paramiko import AuthenticationException, SSHException

        for label, key in self._keys(agent):
            self.offered.append(label)
            try:
                left = transport.auth_publickey(self.target.user, key)
            except SSHException as error:
                if not transport.is_active():
                    raise self._hung_up() from error
                if not isinstance(error, AuthenticationException):
                    self.unusable.append(f"{label}: {error}")
            else:
                if not left:
                    return
                raise self._refused(f"the server also wants {', '.join(left)}")
        raise self._refused("")

    def _keys(self, agent: list[Any]) -> Iterator[tuple[str, Any]]:
        stated = (self.target.stated_key,) if self.target.stated_key else ()
        for path in stated:
            if not os.path.exists(path):
                raise self._no_file(path)
            yield from self._from_file(path, agent)
        listed = {_public_blob(path) for path in (*stated, *self.target.identity_files)}
        for key in agent:
            if not self.target.identities_only or key.asbytes() in listed:
                yield f"{key.get_name()} of the agent ({key.comment or 'no comment'})", key
        for path in self.target.identity_files:
            if os.path.exists(path):
                yield from self._from_file(path, agent)
            elif Path(path).name not in _DEFAULTS:
                self.unusable.append(f"{path} (IdentityFile in the ssh configuration) does not exist")

    def _agent_keys(self, agents: ExitStack) -> list[Any]:
        try:
            keys = _ask_agent(self.target.identity_agent, agents)
        except (OSError, _ssh_exception()) as error:
            self.unusable.append(f"the agent does not answer: {error}")
            return []
        usable = [key for key in keys if key.inner_key is not None]
        for key in keys:
            if key.inner_key is None:
                self.unusable.append(f"{key.get_name()} of the agent: the SSH library does not know such keys")
                self.remedies.append("hardware-backed keys do not work here: use a plain key (identity_file)")
        return usable

    def _from_file(self, path: str, agent: list[Any]) -> Iterator[tuple[str, Any]]:
        """The key of a file; the agent's copy where it has one, since that needs no passphrase."""
        held = [key for key in agent if key.asbytes() == _public_blob(path)]
        if held:
            yield path, held[0]
            return
        try:
            yield path, _load(path, os.environ.get(PASSPHRASE))
        except TypeError:
            self.unusable.append(f"{path} is encrypted")
            self.remedies.append(f"load the key into an agent (ssh-add {path}), or set {PASSPHRASE}")
        except (OSError, ValueError, _ssh_exception()) as error:
            self.unusable.append(f"{path}: {str(error) or type(error).__name__}")

    def _no_file(self, path: str) -> HostError:
        what = f"{self.target}: the key file {path} does not exist"
        remedy = "`identity_file` (or ansible_ssh_private_key_file) in the inventory names it: correct that path"
        return HostError(Problem(what, remedy, where=self.where), exit=UNREACHABLE)

    def _hung_up(self) -> HostError:
        """A server ends the connection after some tries (MaxAuthTries, six by default)."""
        self.remedies.append("name the right key (identity_file), or set IdentitiesOnly yes in the ssh configuration")
        return self._refused("the server hung up after these keys, as it does after MaxAuthTries")

    def _refused(self, reason: str) -> HostError:
        offered = f"offered for user {self.target.user!r}: {'; '.join(self.offered) or 'no key at all'}"
        unusable = f"; not usable: {'; '.join(self.unusable)}" if self.unusable else ""
        what = f"{self.target}: authentication refused{f' ({reason})' if reason else ''}; {offered}{unusable}"
        general = "check `user`, name the right key (identity_file), and see that the host's authorized_keys holds it"
        remedy = "; ".join(dict.fromkeys(self.remedies)) or general
        return HostError(Problem(what, remedy, where=self.where), exit=UNREACHABLE)


_DEFAULTS = ("id_rsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk", "id_xmss", "id_dsa")


def _ssh_exception() -> type[Exception]:
    from paramiko import SSHException

    return SSHException


def _ask_agent(identity_agent: str | None, agents: ExitStack) -> tuple[Any, ...]:
    """The agent's keys, of use until `agents` closes. `identity_agent`: IdentityAgent of ssh_config."""
    from paramiko.agent import AgentSSH

    path = os.environ.get("SSH_AUTH_SOCK") if identity_agent in (None, "SSH_AUTH_SOCK") else identity_agent
    path = os.environ.get(path[1:]) if path and path.startswith("$") else path
    if not path or not os.path.exists(os.path.expanduser(path)):
        return ()
    connection = agents.enter_context(socket.socket(socket.AF_UNIX))
    connection.settimeout(20)
    connection.connect(os.path.expanduser(path))
    agent: Any = AgentSSH()
    # paramiko's own Agent class knows no other socket than the environment's
    agent._connect(connection)
    return tuple(agent.get_keys())


def _load(path: str, passphrase: str | None) -> Any:
    """TypeError: the key is encrypted and there is no passphrase; ValueError: wrong passphrase, or no key."""
    from paramiko.pkey import PKey

    must_be(path)
    encoded: Any = passphrase.encode() if passphrase else None
    try:
        return PKey.from_path(path, encoded)
    except TypeError:
        if passphrase is None:
            raise
        # a passphrase for a key that has none
        return PKey.from_path(path, None)


def _public_blob(path: str) -> bytes | None:
    """The key in PATH.pub; None: not there, or no such file."""
    import base64

    try:
        return base64.b64decode(text_of(f"{path}.pub").split()[1])
    except (OSError, ValueError, IndexError):
        return None
