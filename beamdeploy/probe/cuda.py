"""Whether CUDA starts in the image on the GPUs that the server is given: asked in it, before anything is stopped."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from importlib import resources

from beamdeploy.errors import Problem
from beamdeploy.probe import image_and_options, last_object
from beamdeploy.render import Spec

SECONDS = 180
# $0: the interpreter; $1: its program; then the program's words. nvidia-smi, which the NVIDIA runtime puts into a
# container, tells less (that the driver answers), and is asked where an image has no Python.
SHELL = (
    'if command -v "$0" >/dev/null; then exec "$0" -c "$@"; fi; '
    "if command -v nvidia-smi >/dev/null; then exec nvidia-smi -L; fi; echo nothing to ask"
)
# CUresult of cuda.h → what it means, and what to do
_MEANS: Mapping[int, tuple[str, str]] = {
    2: ("out of memory", "Something holds the GPU's memory: beamdeploy preflight says what."),
    46: ("device busy or unavailable", "Another process holds the GPU alone: see its compute mode in `nvidia-smi -q`."),
    100: ("no GPU that CUDA can use", "Run `nvidia-smi` on the host, and see `dmesg` there (Xid)."),
    214: ("uncorrectable memory error", "Reset the GPU (`nvidia-smi --gpu-reset`), or have it replaced."),
    802: (
        "system not yet initialized",
        "The NVLink fabric is not up: start the fabric manager (`systemctl start nvidia-fabricmanager`), of the "
        "driver's own version.",
    ),
    803: ("driver and library differ in version", "The driver was updated under a running kernel: restart the host."),
    804: (
        "forward compatibility is not supported on this GPU",
        "The image brings a newer CUDA than this driver can run: update the driver, or use an older image.",
    ),
}
_ELSE = ("see cuda.h", "Run `nvidia-smi` on the host, and see `dmesg` there (Xid).")


def cuda_words(spec: Spec, *, contexts: bool) -> tuple[str, ...]:
    """`docker run` of the question, with the server's own GPUs. `contexts`: also use each GPU, since all are free."""
    image, options = image_and_options(spec, gpus=True)
    text = resources.files("beamdeploy.probe").joinpath("cuda.txt").read_text("utf-8")
    code = f"exec(__import__('base64').b64decode('{base64.b64encode(text.encode()).decode()}'))"
    alone = ("--rm", "--network", "none", "--entrypoint", "sh")
    asked = ("-c", SHELL, spec.engine.python, code, *(("contexts",) if contexts else ()))
    return (*spec.host.docker_words, "run", *options, *alone, image, *asked)


def problems(spec: Spec, out: str) -> Iterator[Problem]:
    """What the container said, as problems: an error where CUDA does not start, a warning where it was not asked."""
    seen = re.findall(r"^GPU \d+: ", out, re.MULTILINE)
    told = {"gpus": len(seen)} if seen else last_object(out)
    if told is None:
        yield not_looked_at(" ".join(out.split())[-200:] or "it said nothing")
    elif "unasked" in told:
        yield not_looked_at(str(told["unasked"]))
    elif told.get("status"):
        yield _refused(spec, str(told.get("call")), int(told["status"]))
    elif told.get("gpus") != len(spec.gpus):
        what = f"a container of {spec.image.word} sees {told.get('gpus')} GPUs, and was given {len(spec.gpus)}"
        yield Problem(
            what, "See `nvidia-smi -L` on the host, and NVIDIA_VISIBLE_DEVICES in container.env.", rule="BD267"
        )


def not_looked_at(why: str) -> Problem:
    """The image holds nothing to ask with."""
    what = f"whether CUDA starts in the image was not looked at: {why}"
    return Problem(what, "The start of the server will show it.", rule="BD268", level="warning")


def _refused(spec: Spec, call: str, status: int) -> Problem:
    means, remedy = _MEANS.get(status, _ELSE)
    gpus = ", ".join(map(str, spec.gpus))
    what = f"CUDA does not start in the image {spec.image.word} on GPU {gpus}: {call} says {status} ({means})"
    return Problem(what, remedy, rule="BD267")
