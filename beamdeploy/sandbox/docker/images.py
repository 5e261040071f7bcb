"""Images as files, and the registry behind `docker pull`: it has every image, with a digest made from the name."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from typing import Any

from beamdeploy.sandbox import place
from beamdeploy.sandbox.docker.failure import Failure, daemon

Image = dict[str, Any]

HUB = ("docker.io/", "index.docker.io/", "registry-1.docker.io/")
NOWHERE = "nosuch"
"""A repository, or a tag, that the registry does not have: for whoever wants to see a pull fail."""


def shape(name: str) -> dict[str, Any]:
    """A whole answer of Docker as it is when nothing special is said."""
    held = place.read(os.path.join(os.path.dirname(__file__), "shapes"), f"{name}.json")
    assert held is not None
    return held


def parse(word: str) -> tuple[str, str | None, str | None]:
    """(repository as docker lists it, tag, digest) of a reference. Failure: it is none."""
    named, _, digest = word.partition("@")
    head, colon, tail = named.rpartition(":")
    name, tag = (head, tail) if colon and "/" not in tail else (named, None)
    for host in HUB:
        name = name.removeprefix(host)
    name = name.removeprefix("library/")
    if name != name.lower() and "/" not in name:
        raise Failure(f"invalid reference format: repository name (library/{name}) must be lowercase")
    fine = re.fullmatch(r"[a-z0-9][a-zA-Z0-9.:_/-]*", name) and re.fullmatch(r"[\w][\w.-]*", tag or "x")
    if not fine or (digest and not re.fullmatch(r"sha256:[0-9a-f]{64}", digest)):
        raise Failure("invalid reference format")
    return name, tag, digest or None


def _sha(text: str) -> str:
    # here, since most docker commands pull nothing and should be quick
    import hashlib

    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def all_of(folder: str) -> list[Image]:
    """Every local image."""
    root = os.path.join(folder, place.IMAGES)
    found = (place.read(root, name) for name in sorted(os.listdir(root)) if name.endswith(".json"))
    return [image for image in found if image is not None]


def find(folder: str, word: str) -> Image | None:
    """The image of that id, beginning of an id, or reference; None: it is not here."""
    bare = word.removeprefix("sha256:")
    if re.fullmatch(r"[0-9a-f]{6,64}", bare):
        for image in all_of(folder):
            if image["Id"].removeprefix("sha256:").startswith(bare):
                return image
    try:
        name, tag, digest = parse(word)
    except Failure:
        return None
    for image in all_of(folder):
        if digest is not None and f"{name}@{digest}" in image["RepoDigests"]:
            return image
        if digest is None and f"{name}:{tag or 'latest'}" in image["RepoTags"]:
            return image
    return None


def no_such(word: str) -> Failure:
    """What image inspect says."""
    full = word if ":" in word or "@" in word else f"{word}:latest"
    return daemon(f"no such image: {word}: No such image: {full}")


def pull(folder: str, word: str, out: Any) -> Image:
    """Fetch an image from the registry and print what docker pull prints. Failure: the registry does not have it."""
    name, tag, digest = parse(word)
    full = f"{name}@{digest}" if digest else f"{name}:{tag or 'latest'}"
    repository = name.partition("/")[2] if re.match(r"[^/]+[.:][^/]*/", name) else name
    repository = repository if "/" in repository or repository != name else f"library/{name}"
    if NOWHERE in (name.rpartition("/")[2], tag) or digest == "sha256:" + "0" * 64:
        unknown = "manifest unknown: manifest unknown"
        raise daemon(f"manifest for {full} not found: {unknown}")
    if place.settings(folder).get("disk_full"):
        out.write(f"{tag or digest}: Pulling from {repository}\n")
        what = f"{place.settings(folder)['docker_root']}/tmp/GetImageBlob114502: no space left on device"
        raise Failure(f"failed to register layer: write {what}")
    digest = digest or _sha(f"registry {full}")
    known = find(folder, f"{name}@{digest}")
    image = _tagged(
        known or _made(digest, place.settings(folder).get("image_env", [])),
        name,
        tag if "@" not in full else None,
        digest,
        full,
    )
    place.write(os.path.join(folder, place.IMAGES), image["Id"].removeprefix("sha256:") + ".json", image)
    out.write(_progress(image, full, tag, repository, digest, is_new=known is None))
    return image


def _made(digest: str, env: list[str]) -> Image:
    image = shape("image")
    image["Config"]["Env"] = [*image["Config"]["Env"], *env]
    image["Id"] = _sha(f"image {digest}")
    image["RootFS"]["Layers"] = [_sha(f"layer {number} {digest}") for number in range(3)]
    return image


def _tagged(image: Image, name: str, tag: str | None, digest: str, full: str) -> Image:
    tags = [] if "@" in full else [f"{name}:{tag or 'latest'}"]
    image["RepoTags"] = list(dict.fromkeys([*image["RepoTags"], *tags]))
    image["RepoDigests"] = list(dict.fromkeys([*image["RepoDigests"], f"{name}@{digest}"]))
    return image


def _progress(image: Image, full: str, tag: str | None, repository: str, digest: str, *, is_new: bool) -> str:
    first = full if "@" in full else tag or "latest"
    lines = [f"{first}: Pulling from {repository}"]
    layers = [layer[7:19] for layer in image["RootFS"]["Layers"]] if is_new else []
    for step in ("Pulling fs layer", "Verifying Checksum", "Download complete", "Pull complete"):
        lines += [f"{layer}: {step}" for layer in layers]
    status = "Downloaded newer image for" if is_new else "Image is up to date for"
    domain = full if re.match(r"[^/]+[.:][^/]*/", full) else f"docker.io/{full if '/' in full else 'library/' + full}"
    return "\n".join([*lines, f"Digest: {digest}", f"Status: {status} {full}", domain]) + "\n"


def saved(folder: str, words: Sequence[str]) -> str:
    """Images as a text that `load` takes; names of tags go with those that were asked for by one. Failure: no such."""
    found = []
    for word in words:
        image = find(folder, word)
        if image is None:
            raise daemon(f"No such image: {word}")
        tags = [word if ":" in word.rpartition("/")[2] else f"{word}:latest"] if "sha256:" not in word else []
        found.append({**image, "RepoTags": [tag for tag in tags if tag in image["RepoTags"]], "RepoDigests": []})
    return json.dumps(found)


def load(folder: str, text: str) -> list[str]:
    """Take what `saved` gave; what is said of it. Failure: it is not whole."""
    try:
        held: list[Image] = json.loads(text)
    except ValueError:
        raise daemon("archive/tar: invalid tar header") from None
    lines = []
    for image in held:
        known = find(folder, image["Id"])
        tags = [*(known["RepoTags"] if known else ()), *image["RepoTags"]]
        merged = {**(known or image), "RepoTags": list(dict.fromkeys(tags))}
        place.write(os.path.join(folder, place.IMAGES), image["Id"].removeprefix("sha256:") + ".json", merged)
        lines += [f"Loaded image: {tag}" for tag in image["RepoTags"]] or [f"Loaded image ID: {image['Id']}"]
    return lines


def tag(folder: str, word: str, target: str) -> None:
    """Give an image one more name, which another may have had. Failure: no such image, or no such name."""
    image = find(folder, word)
    if image is None:
        raise daemon(f"No such image: {word if ':' in word else word + ':latest'}")
    name, given, _ = parse(target)
    full = f"{name}:{given or 'latest'}"
    root = os.path.join(folder, place.IMAGES)
    for other in all_of(folder):
        if full in other["RepoTags"]:
            kept = {**other, "RepoTags": [each for each in other["RepoTags"] if each != full]}
            place.write(root, other["Id"].removeprefix("sha256:") + ".json", kept)
    image["RepoTags"] = [*(each for each in image["RepoTags"] if each != full), full]
    place.write(root, image["Id"].removeprefix("sha256:") + ".json", image)


def remove(folder: str, word: str) -> Image:
    """Forget an image. Failure: it is not here."""
    image = find(folder, word)
    if image is None:
        raise daemon(f"No such image: {word if ':' in word else word + ':latest'}")
    os.unlink(os.path.join(folder, place.IMAGES, image["Id"].removeprefix("sha256:") + ".json"))
    return image
