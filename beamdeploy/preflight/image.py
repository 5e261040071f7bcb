"""The image: whether it is there, for this machine, pinned, and runs on this driver."""

from __future__ import annotations

import re
from collections.abc import Iterator

from beamdeploy.gpu_access import GPUS
from beamdeploy.hardware import cuda_of, older
from beamdeploy.image import ImageRef, digest_of, parse_reference, repository
from beamdeploy.look.facts import Facts, Gpus, Image
from beamdeploy.preflight.check import Check
from beamdeploy.render import Spec

_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
REQUIREMENT = "NVIDIA_REQUIRE_CUDA"
DISABLED = "NVIDIA_DISABLE_REQUIRE"


def image_there(spec: Spec, facts: Facts) -> Image | None:
    """The image that the spec names, if it is on the host: rather the one that docker itself finds by that name."""
    found = [image for image in facts.images if known_by(spec.image, image)]
    return next((image for image in found if _named(spec.image, image)), next(iter(found), None))


def run_word(ref: ImageRef, image: Image) -> str:
    """The word by which docker runs exactly this image, without a pull.

    An image that was loaded has no digest of a registry: there docker finds it by its id alone.
    """
    return ref.word if _named(ref, image) else image.id


def known_by(ref: ImageRef, image: Image) -> bool:
    """Whether a local image is what `ref` names: by that name, or by an id that proves its content."""
    return image.id in ref.known_ids or _named(ref, image)


def _named(ref: ImageRef, image: Image) -> bool:
    """Whether docker finds it by the reference. One image can have several digests of one repository."""
    if ref.id is not None:
        return image.id == ref.id
    if ref.digest is not None:
        return any(digest_of(ref, (entry,)) == ref.digest for entry in image.repo_digests)
    return any(_is_tag(ref, tag) for tag in image.repo_tags)


def _is_tag(ref: ImageRef, text: str) -> bool:
    tagged = parse_reference(text)
    return (repository(tagged.name), tagged.tag) == (repository(ref.name), ref.tag or "latest")


def checks(spec: Spec, facts: Facts) -> Iterator[Check]:
    """What of the image can be told now."""
    image = image_there(spec, facts)
    yield from _there(spec, facts, image)
    if image is not None:
        yield from _architecture(image, facts)
        yield from driver(image.env, facts.gpus, spec)
    yield from _pinned(spec)


def _there(spec: Spec, facts: Facts, image: Image | None) -> Iterator[Check]:
    if facts.docker is None:
        return  # a blocker has said why
    if image is not None:
        by = "" if _named(spec.image, image) else f", loaded there: its id {image.id[:19]}… is the locked one"
        yield Check("image", f"{spec.image.word} is on the host{by}")
    elif spec.image.id is not None:
        yield Check(
            "image",
            f"the image {spec.image.id} is not on this host",
            "block",
            "image.id is good only where the image was built or loaded: load it here too, or give image.reference.",
        )
    else:
        yield Check("image", f"{spec.image.word} is not on the host yet: it will be pulled")


def _architecture(image: Image, facts: Facts) -> Iterator[Check]:
    if facts.docker is None or not image.arch:
        return
    machine = _MACHINES.get(facts.docker.arch, facts.docker.arch)
    if image.arch == machine:
        yield Check("architecture", f"image and host are {machine}")
        return
    yield Check(
        "image",
        f"the image is for {image.arch}, the host is {machine}",
        "block",
        "Lock the image again on a host of this kind, or choose another image.",
        "BD259",
    )


def _pinned(spec: Spec) -> Iterator[Check]:
    if not spec.image.pinned:
        why = spec.recipe.unpinned or "it has no digest, and there is no lock"
        yield Check(
            "image",
            f"image {spec.image.word} is not pinned: {why}",
            "warn",
            "The tag may name another image tomorrow: beamdeploy lock writes its digest down.",
            "BD260",
        )


def driver(env: tuple[str, ...], gpus: Gpus | None, spec: Spec) -> Iterator[Check]:
    """The image's requirement on the driver, which the NVIDIA runtime holds a container to at its start."""
    wanted = next((each.partition("=")[2] for each in env if each.startswith(f"{REQUIREMENT}=")), "")
    if not wanted or gpus is None or not gpus.driver:
        return
    cuda = gpus.cuda or cuda_of(gpus.driver)
    gives = f"driver {gpus.driver} gives CUDA {cuda or 'of an unknown version'}"
    met = requirement_met(wanted, gpus.driver, cuda)
    least = needed_cuda(wanted)
    needs = f"the image needs {least or wanted}"
    if met is not False:
        yield Check("CUDA", f"{gives}, {needs}" + ("" if met else " (not known whether that is met)"))
    elif spec.host.gpu_access != GPUS:
        what = f"{gives}, {needs}; with gpu_access: {spec.host.gpu_access} nothing holds a container to that"
        yield Check("CUDA", what, "warn", "CUDA may refuse to start in it: update the driver, or use an older image.")
    elif spec.recipe.container.env.get(DISABLED, "").lower() in ("1", "true"):
        yield Check("CUDA", f"{gives}, {needs}; {DISABLED} lets it start all the same", "warn", "Update the driver.")
    else:
        yield Check(
            "CUDA",
            f"{gives}, {needs}",
            "block",
            "Update the NVIDIA driver on the host, or use an older image (image.reference).",
        )


def needed_cuda(wanted: str) -> str:
    """ "cuda>=13.0 brand=tesla,driver>=535" → "13.0"; "": it names no least version."""
    match = re.search(r"cuda>=(\d+(?:\.\d+)?)", wanted)
    return match[1] if match else ""


def requirement_met(wanted: str, driver: str, cuda: str) -> bool | None:
    """Whether one of the blank-separated alternatives holds; each is a list of conditions, all of which must.

    None: an alternative turns on what is not known here (the brand of the GPU, or the CUDA of the driver).
    The grammar is that of libnvidia-container, src/cli/dsl.c.
    """
    known = {"driver": driver, "cuda": cuda}
    answers = [_all(alternative.split(","), known) for alternative in wanted.split()]
    return True if True in answers else None if None in answers else False


def _all(conditions: list[str], known: dict[str, str]) -> bool | None:
    answers = [_holds(condition, known) for condition in conditions]
    return False if False in answers else None if None in answers else True


def _holds(condition: str, known: dict[str, str]) -> bool | None:
    match = re.fullmatch(r"(\w+)(>=|<=|!=|>|<|=)([\d.]+)", condition)
    have = known.get(match[1], "") if match else ""
    if not match or not have:
        return None
    below, above = older(have, match[3]), older(match[3], have)
    return {">=": not below, "<=": not above, "<": below, ">": above, "=": not below and not above}.get(
        match[2], below or above
    )
