"""The lines about staged folders → `Weights`."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from beamdeploy.errors import Problem
from beamdeploy.look.facts import File, LfsPointer, Restricted, Shard, Weights
from beamdeploy.look.frames import Frame, only

ABSENT, HIDDEN = 1, 3


def model_dir(found: Sequence[Frame]) -> tuple[str | None, tuple[Problem, ...]]:
    """The resolved folder of all weights; "": it is not there; None: not asked, or it cannot be seen (a problem)."""
    frame = only(found, "model_dir")
    if frame is None:
        return None, ()
    if frame.exit == HIDDEN:
        return None, (
            Problem(
                f"this user may not look into {frame.text}, so the weights cannot be looked at",
                "give the user read access to the folder, or connect as another user",
                rule="BD240",
            ),
        )
    return (frame.text if frame.exit == 0 else ""), ()


def parse(found: Sequence[Frame], names: Sequence[str], root: str | None) -> Mapping[str, Weights | None]:
    """The folders by the name that was asked; None: the folder is not there. Nothing where it was not asked."""
    if root is None:
        return {}
    return {name: _weights(found, number, name, root) for number, name in enumerate(names)}


def _weights(found: Sequence[Frame], number: int, name: str, root: str) -> Weights | None:
    section = f"weights.{number}"
    frame = only(found, section)
    if frame is None or (frame.exit != 0 and frame.exit != HIDDEN):
        return None
    if frame.exit == HIDDEN:
        return Weights(name, (File(".", None, readable=False),), {}, None, "", (), ())
    lines = [line.split("\t") for line in frame.text.split("\n")]
    index = {cells[2]: int(cells[1]) for cells in _of(lines, "I", 3)}
    error = next((cells[1] for cells in _of(lines, "E", 2)), "")
    prefix = f"{section}.text."
    return Weights(
        path=name,
        files=tuple(_files(lines, name, root)),
        texts={frame.section.removeprefix(prefix): frame.text for frame in found if frame.section.startswith(prefix)},
        index=index if ["O"] in lines and not error else None,
        index_error=error,
        shards=tuple(_shards(lines, bool(index) and not error)),
        pointers=tuple(LfsPointer(c[2], int(c[1]) if c[1].isdigit() else None) for c in _of(lines, "P", 3)),
        chat_template_in_tokenizer=["C"] in lines,
        restricted=tuple(Restricted(c[4], c[1], int(c[2]), int(c[3])) for c in _of(lines, "M", 5)),
        total=next((int(cells[1]) for cells in _of(lines, "T", 2)), None),
    )


def _of(lines: Sequence[Sequence[str]], kind: str, length: int) -> Iterator[Sequence[str]]:
    return (cells for cells in lines if len(cells) == length and cells[0] == kind)


def _files(lines: Sequence[Sequence[str]], name: str, root: str) -> Iterator[File]:
    folder = posixpath.join(root, name)
    for _, resolved, link in _of(lines, "D", 3):
        if link != "-" and leaves(link, resolved, posixpath.dirname(folder), root):
            yield File(".", None, resolved, outside=True)
    growing = {cells[2] for cells in _of(lines, "G", 3)}
    for _, size, readable, entry, link, resolved in _of(lines, "F", 6):
        number = int(size) if size != "-" else None
        if link == "-":
            yield File(entry, number, readable=readable == "1", growing=entry in growing)
        else:
            within = posixpath.join(folder, posixpath.dirname(entry))
            outside = leaves(link, resolved, within, root)
            # a link that dangles has nothing that could be read; that it dangles is the finding
            yield File(entry, number, resolved or link, outside, number is None or readable == "1")


def leaves(link: str, resolved: str, within: str, root: str) -> bool:
    """Whether a link in the folder `within` cannot be followed once only `root` is mounted, elsewhere.

    An absolute link dangles there even if it leads back below root, and so does one that climbs past root first.
    """
    if link.startswith("/"):
        return True
    climbed = posixpath.normpath(within)
    for part in link.split("/"):
        climbed = posixpath.normpath(posixpath.join(climbed, part))
        if not _below(climbed, root):
            return True
    return bool(resolved) and not _below(resolved, root)


def _below(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")


def _shards(lines: Sequence[Sequence[str]], indexed: bool) -> Iterator[Shard]:
    sizes = {cells[3]: int(cells[1]) for cells in _of(lines, "F", 6) if cells[1] != "-"}
    names = {cells[1]: cells[2] for cells in _of(lines, "N", 3)}
    for _, number, implied, tensors, listed, missing, unlisted, lost, extra, held in _of(lines, "S", 10):
        name = names[number]
        whole = None if implied == "-" else int(implied)
        shard = Shard(name, sizes[name], whole, int(tensors), int(listed))
        # without an index, or with an unreadable header, there is nothing to compare
        if indexed and whole is not None:
            shard = Shard(*_counts(shard), int(missing), lost, int(unlisted), extra)
        yield replace(shard, tensor_bytes=None if whole is None else int(held))


def _counts(shard: Shard) -> tuple[str, int, int | None, int, int]:
    return shard.name, shard.size, shard.implied_size, shard.tensors, shard.indexed
