"""What on the host stands in the way of a spec: facts → Problems. Errors block, warnings and notes are shown."""

from __future__ import annotations

from collections.abc import Iterator

from beamdeploy import hardware
from beamdeploy.engines.traits import traits
from beamdeploy.errors import Problem
from beamdeploy.image import ImageRef, digest_of, parse_reference, repository
from beamdeploy.label import read_labels
from beamdeploy.look.facts import Container, Facts, Gpus, Image, Listener
from beamdeploy.render import Spec
from beamdeploy.weights.comparison import verdict
from beamdeploy.weights.staging import Folder

_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
PREVIOUS = ".previous"
"""Suffix of the container that is kept aside while a new one starts."""
KEPT = ".failed"
"""Suffix of a new server that failed, and was kept for a look."""


def preflight(spec: Spec, facts: Facts) -> tuple[Problem, ...]:
    """Everything that is wrong, each said to be on the spec's host."""
    found = (
        *facts.blockers,
        *_docker(facts),
        *_gpus(spec, facts.gpus),
        *_image(spec, facts),
        *name_problems(spec.recipe.name, facts.containers),
        *_port(spec, facts),
        *_weights(spec, facts),
    )
    return tuple(
        problem.at(f"{spec.host.name}: {problem.where}" if problem.where else spec.host.name) for problem in found
    )


def own(spec_name: str, containers: tuple[Container, ...]) -> Container | None:
    """Our container of that name; None: there is none."""
    return _named(spec_name, spec_name, containers)


def previous(spec_name: str, containers: tuple[Container, ...]) -> Container | None:
    """The container that an earlier apply kept aside."""
    return _named(spec_name + PREVIOUS, spec_name, containers)


def kept(spec_name: str, containers: tuple[Container, ...]) -> Container | None:
    """The container that failed in an earlier apply, and was kept for a look."""
    return _named(spec_name + KEPT, spec_name, containers)


def image_there(spec: Spec, facts: Facts) -> Image | None:
    """The image that the spec names, if it is on the host."""
    return next((image for image in facts.images if known_by(spec.image, image)), None)


def known_by(ref: ImageRef, image: Image) -> bool:
    """Whether a local image is what `ref` names. One image can have several digests of one repository."""
    if ref.id is not None:
        return image.id == ref.id
    if ref.digest is not None:
        return any(digest_of(ref, (entry,)) == ref.digest for entry in image.repo_digests)
    return any(_is_tag(ref, tag) for tag in image.repo_tags)


def _is_tag(ref: ImageRef, text: str) -> bool:
    tagged = parse_reference(text)
    return (repository(tagged.name), tagged.tag) == (repository(ref.name), ref.tag or "latest")


def _named(name: str, deployment: str, containers: tuple[Container, ...]) -> Container | None:
    found = next((container for container in containers if container.name == name), None)
    deployed = read_labels(found.labels) if found is not None else None
    return found if deployed is not None and deployed.name == deployment else None


def _docker(facts: Facts) -> Iterator[Problem]:
    if facts.docker is not None and facts.docker.gpu_support is False:
        yield Problem(
            "docker on this host cannot reach the GPUs: its daemon has no NVIDIA runtime",
            "Install the NVIDIA Container Toolkit there, run `nvidia-ctk runtime configure --runtime=docker`, and "
            "restart the docker daemon.",
            "docker",
        )


def _gpus(spec: Spec, gpus: Gpus | None) -> Iterator[Problem]:
    wanted = spec.recipe.hardware
    if gpus is None:
        yield Problem(
            "no NVIDIA driver was found (nvidia-smi is not there)",
            f"hardware asks for {wanted.count} x {wanted.gpu}: install the driver, or choose another host.",
            "GPUs",
        )
        return
    by_index = {gpu.index: gpu for gpu in gpus.gpus}
    lacking = [index for index in spec.gpus if index not in by_index]
    if lacking:
        yield Problem(
            f"GPU {', '.join(map(str, lacking))} is not there; the host has {len(by_index)}",
            f"hardware.count is {wanted.count}: choose another host, or list its GPUs in the inventory.",
            "GPUs",
        )
    others = {by_index[i].name for i in spec.gpus if i in by_index and not hardware.is_of(wanted.gpu, by_index[i].name)}
    if others:
        yield Problem(
            f"hardware.gpu is {wanted.gpu}, the host has {', '.join(sorted(others))}",
            "Use a recipe for that GPU: kernels and number formats are chosen for one family.",
            "GPUs",
        )
    if wanted.min_driver and hardware.older(gpus.driver, wanted.min_driver):
        yield Problem(
            f"the driver is {gpus.driver}, hardware.min_driver is {wanted.min_driver}",
            "Update the NVIDIA driver on the host.",
            "GPUs",
        )


def _image(spec: Spec, facts: Facts) -> Iterator[Problem]:
    image = image_there(spec, facts)
    if image is None and spec.image.id is not None:
        yield Problem(
            f"the image {spec.image.id} is not on this host",
            "image.id is good only where the image was built or loaded: load it here too, or give image.reference.",
            "image",
        )
    if image is not None and facts.docker is not None:
        machine = _MACHINES.get(facts.docker.arch, facts.docker.arch)
        if image.arch and image.arch != machine:
            yield Problem(
                f"the image is for {image.arch}, the host is {machine}",
                "Lock the image again on a host of this kind, or choose another image.",
                "image",
            )
    if not spec.image.pinned:
        yield Problem(
            f"image {spec.image.word} is not pinned: {spec.recipe.unpinned or '--unpinned was given'}",
            "The tag may name another image tomorrow: beamdeploy lock writes its digest down.",
            "image",
            level="warning",
        )


def name_problems(name: str, containers: tuple[Container, ...]) -> Iterator[Problem]:
    """A container of the deployment's name that another one made, or nobody of ours, is never touched."""
    found = next((container for container in containers if container.name == name), None)
    deployed = read_labels(found.labels) if found is not None else None
    if found is not None and deployed is None:
        yield _stranger(found)
    if found is not None and deployed is not None and deployed.name != name:
        yield _of_another(found, deployed.name)


def _of_another(container: Container, deployment: str) -> Problem:
    """One name is one deployment: a container that was renamed by hand belongs to the one that its label names."""
    return Problem(
        f"the container {container.name} ({container.image}, {container.state}) belongs to another deployment of "
        f"beamdeploy: {container.name} is asked for, its label says {deployment}",
        f"It is not touched. If it was renamed by hand, give it its name back (docker rename {container.name} "
        f"{deployment}), or give the recipe another name.",
        "name",
    )


def _stranger(container: Container) -> Problem:
    return Problem(
        f"a container named {container.name} ({container.image}, {container.state}) is there, and does not carry "
        "beamdeploy's label",
        f"It is not touched. Stop and remove it by hand (docker stop {container.name}; docker rm {container.name}), "
        "or give the recipe another name.",
        "name",
    )


def _port(spec: Spec, facts: Facts) -> Iterator[Problem]:
    wanted = spec.recipe.container
    ours = {spec.recipe.name, spec.recipe.name + PREVIOUS}
    holder = next(
        (
            c
            for c in facts.containers
            if c.name not in ours and c.running and _publishes(c, wanted.address, wanted.port)
        ),
        None,
    )
    if holder is not None:
        yield _port_taken(spec, f"the container {holder.name} ({holder.image})")
        return
    if any(c.name in ours and c.running and wanted.port in (p for _, p, _ in c.ports) for c in facts.containers):
        return
    taken = next((each for each in facts.listeners if _same(each, wanted.address, wanted.port)), None)
    if taken is not None:
        who = f"{taken.program} (pid {taken.pid})" if taken.program else "another program"
        yield _port_taken(spec, f"{who} on {taken.address}:{taken.port}")


def _port_taken(spec: Spec, who: str) -> Problem:
    wanted = spec.recipe.container
    return Problem(
        f"port {wanted.address}:{wanted.port} is taken by {who}",
        "Stop it, or choose another port in container.publish.",
        "port",
    )


def _publishes(container: Container, address: str, port: int) -> bool:
    return any(theirs == port and _overlap(ip, address) for ip, theirs, _ in container.ports)


def _same(listener: Listener, address: str, port: int) -> bool:
    return listener.port == port and _overlap(listener.address, address)


def _overlap(one: str, other: str) -> bool:
    anywhere = ("0.0.0.0", "::", "[::]", "*", "")
    return one.strip("[]") == other.strip("[]") or one in anywhere or other in anywhere


def _weights(spec: Spec, facts: Facts) -> Iterator[Problem]:
    for folder in staged_folders(spec):
        if folder.path in facts.weights:  # where model_dir could not be seen, a blocker has said so
            disk = facts.disks.get(str(spec.host.model_dir))
            yield from verdict(folder, facts.weights[folder.path], spec.weights.get(folder.path), disk)


def staged_folders(spec: Spec) -> tuple[Folder, ...]:
    """The folders that must be staged, with what the recipe says about them."""
    recipe = spec.recipe
    speculative = recipe.speculative
    target = _folder(spec, recipe.model.weights.path, "model.weights.path", "target", recipe.quantization.weights)
    if speculative is None or speculative.drafter is None:
        return (target,)
    return (target, _folder(spec, speculative.drafter.path, "speculative.drafter.path", "drafter", None))


def _folder(spec: Spec, path: str, field: str, role: str, quantization: str | None) -> Folder:
    recipe = spec.recipe
    speculative = recipe.speculative
    return Folder(
        path=path,
        host_path=f"{str(spec.host.model_dir).rstrip('/')}/{path}",
        field=field,
        role=role,
        quantization=quantization,
        quantizes=quantization in (known.online if (known := traits(recipe.engine.name)) else ()),
        tensor_parallel=recipe.engine.tensor_parallel,
        num_speculative_tokens=speculative.num_speculative_tokens if speculative else None,
        method=speculative.method if speculative else None,
        engine=recipe.engine.name,
        max_model_len=recipe.engine.max_model_len,
        gpus=recipe.hardware.count,
        chat_template="chat-template" in recipe.engine.args,
    )
