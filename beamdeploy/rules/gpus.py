"""Rules on GPU families, drivers and number formats that a GPU can compute."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from beamdeploy.hardware import FAMILIES, older
from beamdeploy.models import repo_of
from beamdeploy.rules.rule import Finding, Rule, Subject


def _family(subject: Subject) -> Iterator[Finding]:
    gpu = subject.recipe.hardware.gpu
    if subject.family is not None:
        return
    near = get_close_matches(gpu.upper(), [family.name for family in FAMILIES], 3, 0.6)
    meant = subject.unverified(("hardware", "gpu"))
    if near and not meant:
        what = f"hardware.gpu: {gpu} is no GPU family known here"
        really = "If there is such a GPU, say so: engine.unverified: [hardware.gpu]."
        yield Finding("hardware.gpu", what, f"Did you mean {' or '.join(near)}? {really}", level="error")
        return
    what = f"hardware.gpu: {gpu} is no GPU family known here: it is only compared with nvidia-smi's product name"
    yield Finding("hardware.gpu", what, "Check the name with nvidia-smi -L.")


def capability(dotted: str) -> int:
    """ "10.3" → 103, as the engines count."""
    major, _, minor = dotted.partition(".")
    return int(major) * 10 + int(minor)


def _capability(subject: Subject) -> Iterator[Finding]:
    method, family = subject.recipe.quantization.weights, subject.family
    least = subject.traits.capability.get(method or "")
    if family is None or least is None or capability(family.compute_capability) >= least:
        return
    able = ", ".join(each.name for each in FAMILIES if capability(each.compute_capability) >= least)
    what = (
        f"quantization.weights: {method} needs compute capability {least / 10:.1f} in {subject.recipe.engine.name}, "
        f"{family.name} (hardware.gpu) has {family.compute_capability}"
    )
    fitting = [
        name for name, need in subject.traits.capability.items() if need <= capability(family.compute_capability)
    ]
    yield Finding(
        "quantization.weights", what, f"On {family.name} use {' or '.join(fitting)}; {method} runs on: {able}."
    )


def _checkpoint(subject: Subject) -> Iterator[Finding]:
    method, variant = subject.recipe.quantization.weights, subject.variant
    if variant is None or method is None or method in variant.quantization:
        return
    if method in subject.traits.online and not variant.quantization:
        return  # quantized while it is loaded
    repo = repo_of(subject.recipe.model.weights.source)
    what = f"quantization.weights: {method}, but model.weights.source {repo} is {variant.name}"
    if not variant.quantization:
        yield Finding("quantization.weights", f"{what}, not quantized", "Leave quantization.weights out.")
        return
    yield Finding(
        "quantization.weights", what, f"Write {variant.quantization[0]}, or name the checkpoint that is meant."
    )


def _image_families(subject: Subject) -> Iterator[Finding]:
    family, majors = subject.family, subject.traits.majors
    if family is None or not majors or int(family.compute_capability.partition(".")[0]) in majors:
        return
    what = (
        f"hardware.gpu: {family.name} has compute capability {family.compute_capability}; the published images of "
        f"{subject.recipe.engine.name} hold kernels for {' and '.join(f'{major}.x' for major in majors)} only"
    )
    yield Finding("hardware.gpu", what, "Use an image that was built for this GPU, or another engine.")


def _driver(subject: Subject) -> Iterator[Finding]:
    said, needed = subject.recipe.hardware.min_driver, subject.traits.driver
    if said is not None and needed is not None and len(said) < 40 and older(said, needed):
        what = f"hardware.min_driver: {said} is older than {needed}, which the engine's CUDA needs"
        yield Finding("hardware.min_driver", what, f'Write "{needed}", unless this image is built for an older CUDA.')


RULES = (
    Rule(
        "BD360",
        "The GPU cannot compute this number format",
        "error",
        "Each method has a least compute capability in each engine: NVFP4 in TokenSpeed needs Blackwell (10.0), FP8 "
        "Hopper (9.0). It is checked while layers are built.",
        "hardware:\n  gpu: H200\nquantization:\n  weights: nvfp4  # <-",
        "hardware:\n  gpu: B300\nquantization:\n  weights: nvfp4",
        "TokenSpeed 0.1.1 model_loader/loader.py:127; vLLM 0.33.0 config/vllm.py:930; SGLang 0.5.23 "
        "model_loader/loader.py:259",
        _capability,
    ),
    Rule(
        "BD361",
        "The number format is not the checkpoint's",
        "error",
        "The engine compares it with config.json (quantization_config) or hf_quant_config.json and refuses another.",
        "quantization:\n  weights: fp8  # <-",
        "quantization:\n  weights: nvfp4",
        "TokenSpeed 0.1.1 configs/model_config.py:845; vLLM 0.33.0 config/model.py:1456",
        _checkpoint,
    ),
    Rule(
        "BD362",
        "The engine's images have no kernels for this GPU",
        "warning",
        'Without kernels for its architecture a GPU ends with "no kernel image is available for execution".',
        "hardware:\n  gpu: RTX PRO 6000  # <-",
        "hardware:\n  gpu: B300",
        "TokenSpeed docker/Dockerfile.nvidia, CUDA_ARCH_LIST",
        _image_families,
    ),
    Rule(
        "BD363",
        "The GPU family is not known",
        "warning",
        "What a GPU can compute is known for the families listed here; another name is compared with the host's "
        "product name and with nothing else. One that is near a known family is a slip and an error, unless "
        "engine.unverified names hardware.gpu.",
        "hardware:\n  gpu: B30O  # <-",
        "hardware:\n  gpu: B300",
        "NVIDIA's list of CUDA GPUs",
        _family,
    ),
    Rule(
        "BD364",
        "The driver is older than the engine's CUDA needs",
        "warning",
        "CUDA 13 needs an R580 driver; with an older one the container is refused at its start.",
        'hardware:\n  min_driver: "550"  # <-',
        'hardware:\n  min_driver: "580"',
        "NVIDIA CUDA compatibility; TokenSpeed's base image cu130",
        _driver,
    ),
)
