"""Throw-away keys of a sandbox: one for its SSH server, one for whoever connects."""

from __future__ import annotations

import base64
import os
from pathlib import Path


def make(path: Path) -> None:
    """Write an Ed25519 key in OpenSSH's form, and the public one beside it."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    none = serialization.NoEncryption()
    text = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, none)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(text)
    form = serialization.PublicFormat.OpenSSH
    text = key.public_key().public_bytes(serialization.Encoding.OpenSSH, form)
    path.with_name(path.name + ".pub").write_bytes(text + b"\n")


def public(path: Path) -> bytes:
    """The public key that lies beside a key, as it goes over the wire."""
    return base64.b64decode(line(path).split()[1])


def line(path: Path) -> str:
    """The public key that lies beside a key, as one line of text."""
    return path.with_name(path.name + ".pub").read_text(encoding="utf-8").strip()
