"""Lock the image: pull the recipe's tag on a host and write down the digest that its repository gave."""

from __future__ import annotations

import json
from collections.abc import Callable

from beamdeploy.diagnose import docker_failure
from beamdeploy.errors import HostError, InputError, Problem
from beamdeploy.image import ImageRef, digest_of
from beamdeploy.inventory import Host
from beamdeploy.lock import Lock, lock_file
from beamdeploy.plan import PULL_TIMEOUT
from beamdeploy.recipe import Recipe
from beamdeploy.remote import Session


def pin(session: Session, host: Host, recipe: Recipe, say: Callable[[str, str], None]) -> Lock:
    """The lock of the recipe's image as this host's docker gets it. HostError: it has no registry digest."""
    ref = recipe.image
    if ref.id is not None:
        what = "image.id names an image of one host: there is no digest to lock"
        raise InputError([Problem(what, "Give image.reference to lock an image of a registry.", file=recipe.file)])
    pulled = session.follow(
        (*host.docker_words, "pull", ref.word), lambda line: say("pull", line), timeout=PULL_TIMEOUT
    )
    digests = _repo_digests(session, host, ref)
    digest = digest_of(ref, digests) if digests is not None else None
    if digest is not None and pulled.ok:
        reference = recipe.source["image"]["reference"].partition("@")[0]
        return Lock(lock_file(recipe.file), reference, digest)
    if digests is not None and digest is None:
        raise HostError(_no_digest(ref, host))
    raise HostError(docker_failure(pulled, f"{host.name}: pull"))


def _repo_digests(session: Session, host: Host, ref: ImageRef) -> tuple[str, ...] | None:
    """All repositories' digests of the local image; None: it is not there."""
    found = session.run((*host.docker_words, "images", "--quiet", "--no-trunc", ref.word), timeout=60)
    image = next(iter(found.out.split()), None)
    if not found.ok:
        raise HostError(docker_failure(found, f"{host.name}: look for the image"))
    if image is None:
        return None
    told = session.run((*host.docker_words, "image", "inspect", "--format", "{{json .RepoDigests}}", image), timeout=60)
    if not told.ok:
        raise HostError(docker_failure(told, f"{host.name}: look at the image"))
    return tuple(json.loads(told.out) or ())


def _no_digest(ref: ImageRef, host: Host) -> Problem:
    return Problem(
        f"the image {ref.word} on this host has no registry digest: it was built or loaded there, not pulled",
        "Push it to a registry that the hosts can reach and lock it again, or pin it by image id, which is good on "
        "this host only: image: {id: sha256:…} (docker image ls --no-trunc).",
        f"{host.name}: lock",
    )
