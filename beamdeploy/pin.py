"""Write down what a recipe's image and weights are: asked of registry and hub, or of a host known to be good."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from beamdeploy import registry
from beamdeploy.diagnose import docker_failure
from beamdeploy.errors import BeamdeployError, HostError, InputError, Problem, worst
from beamdeploy.image import ImageRef, digest_of
from beamdeploy.inventory import Host
from beamdeploy.lock import Lock, LockedFolder, fits_image, lock_file, wanted_folders
from beamdeploy.plan import PULL_TIMEOUT
from beamdeploy.recipe import Folder, Recipe
from beamdeploy.remote import Session
from beamdeploy.weights import hub
from beamdeploy.weights.hashing import Hashes, hash_folders
from beamdeploy.weights.listing import is_read

Say = Callable[[str, str], None]


@dataclass(frozen=True)
class Wish:
    """What is asked anew: an image or weights that are locked already and still fit the recipe are kept otherwise."""

    image: bool = False
    weights: bool = False
    insecure: tuple[str, ...] = ()


def pin(recipe: Recipe, old: Lock | None, wish: Wish, say: Say) -> tuple[Lock, tuple[Problem, ...]]:
    """The lock of a recipe from its registry and hub, and what it cannot hold. Errors: all that failed, as one."""
    kept = kept_of(recipe, old, wish)
    failures: list[BeamdeployError] = []
    lock, notes = kept, tuple(_unlockable(recipe, kept))
    if kept.digest is None and recipe.image.id is None:
        say("registry", recipe.image.word)
        lock = _tried(lock, partial(_with_image, lock, recipe, wish), failures)
    for folder in wanted_folders(recipe):
        source = hub.parse_source(folder.source)
        if source is not None and folder.path not in kept.weights:
            say("hub", source.text)
            lock = _tried(lock, partial(_with_fetched, lock, folder, source), failures)
    if failures:
        raise BeamdeployError(
            [problem for error in failures for problem in error.problems], exit=worst(e.exit for e in failures)
        )
    return lock, notes


def kept_of(recipe: Recipe, old: Lock | None, wish: Wish) -> Lock:
    """What of an older lock still holds."""
    kept = Lock(lock_file(recipe.file))
    if old is None:
        return kept
    if old.digest is not None and not wish.image and recipe.image.id is None and fits_image(recipe.image, old):
        kept = replace(kept, reference=old.reference, digest=old.digest, platforms=old.platforms)
    sources = {folder.path: folder.source for folder in wanted_folders(recipe)}
    weights = {p: f for p, f in old.weights.items() if p in sources and f.source == sources[p] and not wish.weights}
    return replace(kept, weights=weights)


def with_folder(lock: Lock, path: str, folder: LockedFolder) -> Lock:
    """The lock with one folder's files."""
    return replace(lock, weights={**lock.weights, path: folder})


def _tried(before: Lock, work: Callable[[], Lock], failures: list[BeamdeployError]) -> Lock:
    try:
        return work()
    except BeamdeployError as error:
        failures.append(error)
        return before


def _with_image(lock: Lock, recipe: Recipe, wish: Wish) -> Lock:
    found = registry.resolve(recipe.image, insecure=wish.insecure)
    platforms: dict[str, tuple[str | None, str]] = {
        name: (one.manifest, one.config) for name, one in found.platforms.items()
    }
    return replace(lock, reference=reference_of(recipe), digest=found.digest, platforms=platforms)


def _with_fetched(lock: Lock, folder: Folder, source: hub.Source) -> Lock:
    # the recipe's own words: they are what a later recipe is compared with
    return with_folder(lock, folder.path, replace(hub.fetch_folder(source), source=folder.source))


def reference_of(recipe: Recipe) -> str:
    """The recipe's reference without a digest."""
    return str(recipe.source["image"]["reference"]).partition("@")[0]


def _unlockable(recipe: Recipe, kept: Lock) -> Iterable[Problem]:
    for folder in wanted_folders(recipe):
        if hub.parse_source(folder.source) is None and folder.path not in kept.weights:
            yield Problem(
                f"{folder.path} is not locked: the recipe names no hub (hf://…) that it comes from",
                f"Take its files from a host that is known to be good: beamdeploy lock {recipe.file} --from HOST",
                file=recipe.file,
                level="warning",
            )


def pin_image_on(session: Session, host: Host, recipe: Recipe, say: Say) -> Lock:
    """The lock of the recipe's image as this host's docker gets it. HostError: it has no registry digest."""
    ref = recipe.image
    pulled = session.follow(
        (*host.docker_words, "pull", ref.word), lambda line: say("pull", line), timeout=PULL_TIMEOUT
    )
    found = _local_image(session, host, ref)
    digest = digest_of(ref, found.digests) if found is not None else None
    if found is not None and digest is not None and pulled.ok:
        platforms = _platforms_of(found)
        return Lock(lock_file(recipe.file), reference_of(recipe), digest, platforms)
    if found is not None and digest is None:
        raise HostError(_no_digest(ref, host))
    raise HostError(docker_failure(pulled, f"{host.name}: pull"))


def refuse_id(recipe: Recipe) -> None:
    """InputError: the recipe names an image of one host, and there is nothing else to lock."""
    if recipe.image.id is not None and not any(folder.source for folder in wanted_folders(recipe)):
        what = "image.id names an image of one host: there is no digest to lock"
        raise InputError([Problem(what, "Give image.reference to lock an image of a registry.", file=recipe.file)])


@dataclass(frozen=True)
class _Local:
    """An image as a host's docker knows it: id, repositories' digests, platform."""

    id: str
    digests: tuple[str, ...]
    platform: str


def _platforms_of(found: _Local) -> Mapping[str, tuple[str | None, str]]:
    """What a host can say: its own platform's image id; of an index it does not tell which manifest it took."""
    return {found.platform: (None, found.id)}


def _local_image(session: Session, host: Host, ref: ImageRef) -> _Local | None:
    """The local image; None: it is not there."""
    found = session.run((*host.docker_words, "images", "--quiet", "--no-trunc", ref.word), timeout=60)
    image = next(iter(found.out.split()), None)
    if not found.ok:
        raise HostError(docker_failure(found, f"{host.name}: look for the image"))
    if image is None:
        return None
    form = '{"id":{{json .Id}},"digests":{{json .RepoDigests}},"os":{{json .Os}},"arch":{{json .Architecture}}}'
    told = session.run((*host.docker_words, "image", "inspect", "--format", form, image), timeout=60)
    if not told.ok:
        raise HostError(docker_failure(told, f"{host.name}: look at the image"))
    held = json.loads(told.out)
    return _Local(held["id"], tuple(held["digests"] or ()), f"{held['os']}/{held['arch']}")


def _no_digest(ref: ImageRef, host: Host) -> Problem:
    return Problem(
        f"the image {ref.word} on this host has no registry digest: it was built or loaded there, not pulled",
        "Pull it from a registry (push it to one that the hosts can reach, if none has it) and lock it again; or pin "
        "it by image id, which is good on this host only: image: {id: sha256:…} (docker image ls --no-trunc).",
        f"{host.name}: lock",
    )


def pin_on(
    session: Session, host: Host, recipe: Recipe, old: Lock | None, wish: Wish, say: Say
) -> tuple[Lock, tuple[Problem, ...]]:
    """The lock of what a host that is known to be good has: its image's digest, and the hashes of its weights.

    HostError: the image has no registry digest, or a folder is not there or not readable.
    """
    refuse_id(recipe)
    lock = kept_of(recipe, old, wish)
    if lock.digest is None and recipe.image.id is None:
        lock = replace(lock, **_image_fields(pin_image_on(session, host, recipe, say)))
    missing = [folder for folder in wanted_folders(recipe) if folder.path not in lock.weights]
    if missing:
        deep = hash_folders(session, host, [folder.path for folder in missing], say)
        for folder in missing:
            lock = with_folder(lock, folder.path, _of_host(host, folder, deep.folders[folder.path]))
    return lock, ()


def _image_fields(lock: Lock) -> dict[str, Any]:
    return {"reference": lock.reference, "digest": lock.digest, "platforms": lock.platforms}


def _of_host(host: Host, folder: Folder, hashes: Hashes | None) -> LockedFolder:
    where = f"{host.name}: lock"
    at = f"{host.model_dir}/{folder.path}"
    if hashes is None:
        raise HostError(Problem(f"{at} is not there, or may not be entered", "stage it there first", where))
    if hashes.unread:
        name, said = next(iter(sorted(hashes.unread.items())))
        raise HostError(Problem(f"{at}/{name} cannot be read: {said}", "make it readable, then lock again", where))
    files = {name: one for name, one in sorted(hashes.files.items()) if is_read(name)}
    if not files:
        raise HostError(Problem(f"{at} holds no file", "stage it there first", where))
    return LockedFolder(folder.source, None, files)
