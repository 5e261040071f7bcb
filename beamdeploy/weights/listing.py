"""Which files of a checkpoint's folder matter: those that an engine may read."""

from __future__ import annotations

import posixpath

_TEXTS = (".md", ".png", ".jpg", ".jpeg", ".gif", ".svg", ".webp", ".pdf", ".mp4")
_NAMES = ("license", "notice", "readme", "use_policy", "copying")


def is_read(name: str) -> bool:
    """Whether a file, by its path below the folder, is one that an engine may read.

    Model cards, licences, pictures and hidden files (.gitattributes, .cache) are not locked, so that a changed card
    makes no lock stale.
    """
    parts = name.lower().split("/")
    stem = posixpath.splitext(parts[-1])[0]
    return not (any(part.startswith(".") for part in parts) or parts[-1].endswith(_TEXTS) or stem in _NAMES)
