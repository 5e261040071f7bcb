"""Rules on which image runs, and whether that is certain."""

from __future__ import annotations

from collections.abc import Iterator

from beamdeploy.engines.traits import described, traits
from beamdeploy.image import parse_reference, repository
from beamdeploy.rules.rule import Finding, Rule, Subject


def _unpinned(subject: Subject) -> Iterator[Finding]:
    recipe = subject.recipe
    if recipe.image.pinned or _locked(subject):
        return
    what = f"image.reference: {recipe.image.word} has no digest, and there is no lock"
    if recipe.unpinned is None:
        remedy = "Run beamdeploy lock, give name@sha256:…, or say why in image.unpinned."
        yield Finding("image.reference", f"{what}: apply refuses it without --unpinned", remedy)
    else:
        remedy = "beamdeploy lock writes down the digest that your registry serves."
        yield Finding("image.reference", f"{what} ({recipe.unpinned})", remedy, "info")


def _locked(subject: Subject) -> bool:
    return subject.lock is not None and subject.lock.digest is not None


def _stale(subject: Subject) -> Iterator[Finding]:
    lock, image = subject.lock, subject.recipe.image
    if lock is None or lock.reference is None or lock.digest is None or image.id is not None:
        return
    at = parse_reference(lock.reference)
    if (at.name, at.tag) != (image.name, image.tag) or image.digest not in (None, lock.digest):
        said = subject.recipe.source["image"]["reference"]
        what = f"image.reference: {said} is not what {lock.file} was written for ({lock.reference}@{lock.digest[:19]}…)"
        remedy = f"Write the lock anew: beamdeploy lock {subject.recipe.file} -i INVENTORY"
        yield Finding("image.reference", what, remedy)


def _reason(subject: Subject) -> Iterator[Finding]:
    if subject.recipe.unpinned is not None and subject.recipe.image.pinned:
        what = "image.unpinned gives a reason for an image without digest, and the image has one"
        yield Finding("image.unpinned", what, "Remove it.", key=True)


def _moving(subject: Subject) -> Iterator[Finding]:
    image = subject.recipe.image
    if image.pinned or _locked(subject) or image.tag not in (None, "latest", "nightly", "main", "dev"):
        return
    said = subject.recipe.source["image"]["reference"]
    what = f"image.reference: {said} is another image every few days"
    yield Finding("image.reference", what, "Name a version's tag, or better a digest.")


def _other_engine(subject: Subject) -> Iterator[Finding]:
    image, mine = subject.recipe.image, subject.recipe.engine.name
    if image.id is not None:
        return
    name = repository(image.name)
    owners = [engine for engine in described() if name in _repositories(engine)]
    if owners and mine not in owners:
        what = f"image.reference: {name} is the image of {owners[0]}, engine.name is {mine}"
        yield Finding("image.reference", what, "Make them one engine: the command and its flags are the engine's.")


def _registry(subject: Subject) -> Iterator[Finding]:
    host, slash, _ = subject.recipe.image.name.partition("/")
    if slash and host != host.lower() and not {".", ":"} & set(host):
        what = f"image.reference: docker reads {host} as the host name of a registry, since it is not lower case"
        yield Finding("image.reference", what, f"Write {host.lower()}, or the registry's full name.")


def _repositories(engine: str) -> tuple[str, ...]:
    found = traits(engine)
    return found.repositories if found else ()


RULES = (
    Rule(
        "BD420",
        "The image is not pinned",
        "warning",
        "A tag may name another image tomorrow, so that two servers differ and a rollback brings something new. With a "
        "reason in image.unpinned this is a note.",
        "image:\n  reference: lightseekorg/tokenspeed:beam  # <-\n  unpinned: null",
        "image:\n  reference: lightseekorg/tokenspeed:beam@sha256:" + "1" * 64 + "\n  unpinned: null",
        "",
        _unpinned,
    ),
    Rule(
        "BD421",
        "The lock is stale",
        "error",
        "The lock beside the recipe was written for another reference; which of both is meant is not known.",
        "image:\n  reference: registry.example.org/tokenspeed:beam-2  # <-",
        "image:\n  reference: registry.example.org/tokenspeed:beam",
        "",
        _stale,
    ),
    Rule(
        "BD422",
        "A reason for no digest, and a digest",
        "warning",
        "The reason is left over from before the image was pinned.",
        "image:\n  reference: lightseekorg/tokenspeed:beam@sha256:" + "1" * 64 + "\n  unpinned: no digest yet  # <-",
        "image:\n  reference: lightseekorg/tokenspeed:beam@sha256:" + "1" * 64 + "\n  unpinned: null",
        "",
        _reason,
    ),
    Rule(
        "BD423",
        "The tag moves",
        "warning",
        "No tag (which means latest), latest, nightly, main and dev name what was built last.",
        "image:\n  reference: lightseekorg/tokenspeed:latest  # <-",
        "image:\n  reference: lightseekorg/tokenspeed:beam",
        "",
        _moving,
    ),
    Rule(
        "BD424",
        "The image belongs to another engine",
        "error",
        "The words that are rendered are for engine.name; another engine's image refuses them.",
        "image:\n  reference: vllm/vllm-openai:v0.33.0  # <-",
        "image:\n  reference: lightseekorg/tokenspeed:beam",
        "the engines' published images",
        _other_engine,
    ),
    Rule(
        "BD425",
        "The repository is read as a registry",
        "error",
        "Repositories are lower case. Docker takes a first part in other letters for a registry's host name, and looks "
        "it up.",
        "image:\n  reference: LightSeekOrg/tokenspeed:beam  # <-",
        "image:\n  reference: lightseekorg/tokenspeed:beam",
        "distribution/reference, normalize.go",
        _registry,
    ),
)
