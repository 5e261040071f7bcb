"""Image references: the full form to pull and run, the form to ask a docker daemon with, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

_HUB = ("docker.io/", "index.docker.io/", "registry-1.docker.io/")


@dataclass(frozen=True)
class ImageRef:
    """An image: by `digest` in a registry's repository `name`, by `tag`, or by local `id` ("sha256:…").

    `ids`: the ids that the image of this digest has on a host, as far as a lock says: those of its configs (or, in
    containerd's store, manifests). They are hashes of the content, so that a host's image with one of them is it.
    """

    name: str = ""
    tag: str | None = None
    digest: str | None = None
    id: str | None = None
    ids: tuple[str, ...] = field(default=(), compare=False)

    @property
    def word(self) -> str:
        """What `docker pull` and `docker run` get, and the form in which a daemon finds it.

        The tag is left out beside a digest: `docker images -q name:tag@digest` finds nothing (docker 20.10).
        """
        if self.id is not None:
            return self.id
        return f"{self.name}@{self.digest}" if self.digest else f"{self.name}:{self.tag or 'latest'}"

    @property
    def pinned(self) -> bool:
        return self.digest is not None or self.id is not None

    @property
    def known_ids(self) -> tuple[str, ...]:
        """All ids that prove it."""
        return (self.id,) if self.id is not None else self.ids

    def staged(self, image: str) -> str:
        """The tag that this image has where it was loaded, with the id `image`: it came from no registry there."""
        return f"{self.name or 'beamdeploy-staged'}:{(self.digest or image).replace(':', '-')}"

    def at(self, digest: str) -> ImageRef:
        """The same repository's image with this digest."""
        return replace(self, digest=digest)


def parse_reference(text: str) -> ImageRef:
    """`name[:tag][@sha256:…]`, already checked against the schema's pattern."""
    named, _, digest = text.partition("@")
    head, colon, tail = named.rpartition(":")
    if colon and "/" not in tail:
        return ImageRef(head, tail, digest or None)
    return ImageRef(named, None, digest or None)


def repository(name: str) -> str:
    """The name as docker lists it: Docker Hub's host and its `library/` are left out."""
    for host in _HUB:
        name = name.removeprefix(host)
    return name.removeprefix("library/")


def digest_of(ref: ImageRef, repo_digests: tuple[str, ...]) -> str | None:
    """The digest under which the repository of `ref` knows this image; None: it never came from there."""
    wanted = repository(ref.name)
    digests = (entry.partition("@") for entry in repo_digests)
    return next((digest for name, _, digest in digests if repository(name) == wanted), None)
