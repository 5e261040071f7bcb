"""Known hosts files (sshd(8), SSH_KNOWN_HOSTS FILE FORMAT): which keys are known for a host, and from which line."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from beamdeploy.errors import UNREACHABLE, HostError, Problem
from beamdeploy.regular import text_of
from beamdeploy.remote.ssh_config import Target


@dataclass(frozen=True)
class KnownKey:
    """A line that speaks of the host. `marker`: "", "@revoked" or "@cert-authority"."""

    file: str
    line: int
    marker: str
    type: str
    blob: bytes


def fingerprint(blob: bytes) -> str:
    """As `ssh` and `ssh-keygen -l` print it."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def known_keys(name: str, files: Iterable[str]) -> tuple[KnownKey, ...]:
    """The keys of a host ("gpu-a", "[gpu-a]:2222") in these files; a file that is not there holds none."""
    return tuple(key for file in files for key in parse(name, file, _text(file)))


def _text(file: str) -> str:
    try:
        return "" if file == os.devnull else text_of(file, errors="replace")
    except FileNotFoundError:
        return ""


def parse(name: str, file: str, text: str) -> tuple[KnownKey, ...]:
    """The keys that `text`, the content of `file`, holds for a host."""
    found = (_key(name, file, number, line.split()) for number, line in enumerate(text.splitlines(), 1))
    return tuple(key for key in found if key is not None)


def _key(name: str, file: str, number: int, fields: list[str]) -> KnownKey | None:
    marker = fields.pop(0) if fields and fields[0].startswith("@") else ""
    if len(fields) < 3 or fields[0].startswith("#") or not _names(fields[0], name.lower()):
        return None
    try:
        return KnownKey(file, number, marker, fields[1], base64.b64decode(fields[2], validate=True))
    except ValueError:
        return None


def _names(field: str, name: str) -> bool:
    if field.startswith("|1|"):
        return _is_hash_of(field, name)
    patterns = field.lower().split(",")
    refused = any(p.startswith("!") and _matches(p[1:], name) for p in patterns)
    return not refused and any(_matches(p, name) for p in patterns)


def _matches(pattern: str, name: str) -> bool:
    # brackets are no wildcard here: they stand around the host of "[host]:port"
    return fnmatchcase(name, pattern.replace("[", "[[]"))


def _is_hash_of(field: str, name: str) -> bool:
    try:
        salt, digest = (base64.b64decode(part, validate=True) for part in field.split("|")[2:4])
    except ValueError:
        return False
    return hmac.compare_digest(hmac.digest(salt, name.encode(), "sha1"), digest)


def algorithms(keys: Iterable[KnownKey], offered: Iterable[str]) -> tuple[str, ...]:
    """The host key algorithms, those of known keys first: else a known ed25519 key looks changed by an ECDSA one."""
    types = {key.type for key in keys if not key.marker}
    wanted = types | ({"rsa-sha2-512", "rsa-sha2-256"} if "ssh-rsa" in types else set())
    return tuple(sorted(offered, key=lambda algorithm: algorithm not in wanted))


@dataclass(frozen=True)
class HostKeyCheck:
    """Paramiko's host key policy for one target; it is asked before anything is sent to authenticate."""

    target: Target
    where: str
    keys: tuple[KnownKey, ...]
    accept_new: bool
    note: Callable[[str], None]

    def missing_host_key(self, client: object, hostname: str, key: Any) -> None:
        """HostError: the key is unknown, changed or revoked."""
        kind, blob = key.get_name(), key.asbytes()
        trusted = [known for known in self.keys if not known.marker]
        revoked = [known for known in self.keys if known.marker == "@revoked" and known.blob == blob]
        if revoked:
            raise self._refusal(f"the host key {fingerprint(blob)} is revoked by {_place(revoked[0])}", "")
        if any(known.blob == blob for known in trusted):
            return
        if trusted:
            same = [known for known in trusted if known.type == kind]
            raise self._changed((same or trusted)[0], kind, blob)
        if not self.accept_new:
            raise self._unknown(kind, blob)
        self._store(kind, blob)

    def _refusal(self, what: str, remedy: str) -> HostError:
        return HostError(Problem(f"{self.target}: {what}", remedy, where=self.where), exit=UNREACHABLE)

    def _changed(self, known: KnownKey, kind: str, blob: bytes) -> HostError:
        return self._refusal(
            f"the key of this host changed: {_place(known)} holds {known.type} {fingerprint(known.blob)}, "
            f"the server presents {kind} {fingerprint(blob)}; nothing was sent",
            "compare with `ssh-keygen -lf /etc/ssh/ssh_host_*_key.pub` on the host's own console; if the new key is "
            f"right, remove the old entry: ssh-keygen -f {known.file} -R '{self.target.host_key_name}'",
        )

    def _unknown(self, kind: str, blob: bytes) -> HostError:
        files = ", ".join(self.target.known_hosts)
        return self._refusal(
            f"the key of this host is not known ({files}): it presents {kind} {fingerprint(blob)}",
            f"compare the fingerprint with the host's own, then add the line `{self._line(kind, blob)}` to "
            f"{self.target.known_hosts[0]}, or run once with --accept-new",
        )

    def _line(self, kind: str, blob: bytes) -> str:
        return f"{self.target.host_key_name} {kind} {base64.b64encode(blob).decode()}"

    def _store(self, kind: str, blob: bytes) -> None:
        file = self.target.known_hosts[0]
        try:
            append(Path(file), self._line(kind, blob))
        except OSError as error:
            raise self._refusal(f"the new host key cannot be stored: {error}", f"make {file} writable") from error
        self.note(f"{self.target}: stored the new host key {kind} {fingerprint(blob)} in {file}")


def _place(known: KnownKey) -> str:
    return f"{known.file}:{known.line}"


def append(file: Path, line: str) -> None:
    """Add a line in one write, so that hosts that are met at once do not mix theirs."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    text = _text(str(file))
    lead = "\n" if text and not text.endswith("\n") else ""
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, f"{lead}{line}\n".encode())
    finally:
        os.close(descriptor)
