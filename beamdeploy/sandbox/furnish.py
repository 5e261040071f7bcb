"""Lay out the folder of a sandbox: its programs, its image, its keys, and what is emulated."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from beamdeploy.sandbox import keys, place
from beamdeploy.sandbox.profiles import Fault, Profile

PACKAGES = str(Path(__file__).resolve().parents[2])
FOLDERS = (
    place.BIN,
    place.HOME,
    place.TMP,
    place.LOCKS,
    place.JOBS,
    place.MODELS,
    place.STATE,
    place.CONTAINERS,
    place.IMAGES,
)
OWN = {"docker": "docker.main", "nvidia-smi": "programs.nvidia_smi", "ss": "programs.ss"}
PROGRAMS = Path(__file__).with_name("programs")
IN_IMAGE = (
    "sh",
    "cat",
    "ls",
    "sleep",
    "env",
    "echo",
    "true",
    "false",
    "test",
    "id",
    "uname",
    "head",
    "tail",
    "grep",
    "sed",
)
SHIMS: Mapping[str, str] = {
    # what a check inside the image imports from the real one
    "sitecustomize.py": "from beamdeploy.sandbox.cuda import put_in_place\n\nput_in_place()\n",
    "smg/__init__.py": "",
    "smg/smg_rs.py": "from beamdeploy.sandbox.probes import "
    "get_available_reasoning_parsers, get_available_tool_call_parsers\n",
    "smg/launch_router.py": "from beamdeploy.sandbox.probes import parse_router_args\n",
    "tokenspeed/__init__.py": '__version__ = "0.1.1"\n',
    "tokenspeed/runtime/__init__.py": "",
    "tokenspeed/runtime/utils/__init__.py": "",
    "tokenspeed/runtime/utils/server_args.py": "from beamdeploy.sandbox.probes import ServerArgs\n",
}


def furnish(folder: Path) -> None:
    """Make all that stays the same for the life of a sandbox."""
    for name in FOLDERS:
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / place.USED).touch()
    for name in (place.HOST_KEY, place.USER_KEY):
        keys.make(folder / name)
    for name, module in OWN.items():
        _program(folder / place.BIN / name, _python(f"beamdeploy.sandbox.{module}", str(folder)))
    _program(folder / place.BIN / "df", _shell("df", str(folder)))
    _program(folder / place.BIN / "grep", _shell("grep", str(folder), shutil.which("grep") or "/bin/grep"))
    _program(folder / place.OWN / "groups", _python("beamdeploy.sandbox.programs.groups", str(folder)))
    for name in _lacking():
        _program(folder / place.BIN / name, _python(f"beamdeploy.sandbox.programs.{name}"))
    _image(folder)


def _lacking() -> tuple[str, ...]:
    """What a Linux server has and this machine lacks, or has in another form."""
    absent = [name for name in ("timeout", "flock") if shutil.which(name) is None]
    return (*absent, *(() if sys.platform == "linux" else ("stat",)))


def _python(module: str, *arguments: str) -> str:
    """The words that run a module's main without the site's packages, which makes it quick."""
    code = f"import sys; sys.path.insert(0, {PACKAGES!r}); from {module} import main; sys.exit(main({{}}sys.argv[1:]))"
    given = "".join(f"{argument!r}, " for argument in arguments)
    return shlex.join((sys.executable, "-S", "-E", "-B", "-c", code.format(given)))


def _shell(name: str, *arguments: str) -> str:
    return shlex.join(("/bin/sh", str(PROGRAMS / f"{name}.sh"), *arguments))


def _program(path: Path, words: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\nexec {words} "$@"\n', encoding="utf-8")
    path.chmod(0o755)


def _image(folder: Path) -> None:
    """The programs of the image, which is the stand-in's, whatever it is called."""
    programs, library = folder / place.IMAGE_BIN, folder / place.IMAGE_LIB
    for name, text in SHIMS.items():
        (library / name).parent.mkdir(parents=True, exist_ok=True)
        (library / name).write_text(text, encoding="utf-8")
    for name in ("tokenspeed", "ts"):
        _program(programs / name, _python("beamdeploy.sandbox.engine"))
    for name in ("vllm", "sglang"):
        _program(programs / name, _python("beamdeploy.sandbox.solo", name))
    path = f"PYTHONPATH={shlex.quote(os.pathsep.join((str(library), PACKAGES)))}"
    for name in ("python3", "python"):
        # with `site`, which puts the emulated driver in its place
        _program(programs / name, f"env {path} {shlex.quote(sys.executable)} -s -B")
    for name in IN_IMAGE:
        for where in ("/bin", "/usr/bin"):
            if os.path.exists(f"{where}/{name}") and not (programs / name).exists():
                (programs / name).symlink_to(f"{where}/{name}")


def emulate(folder: Path, profile: Profile, faults: Iterable[Fault], ports: Iterable[tuple[str, int]]) -> None:
    """Write down what is emulated from now on. `ports`: what a fault may find taken."""
    faults = tuple(faults)
    driver = next((fault.driver for fault in faults if fault.driver), profile.driver)
    runtime = all(fault.gpu_runtime for fault in faults)
    taken = any(fault.taken for fault in faults)
    settings: dict[str, Any] = {
        "profile": {**asdict(profile), "driver": driver},
        "faults": [fault.name for fault in faults],
        "weights": [fault.weights for fault in faults if fault.weights],
        "engine_env": _engine_env(faults),
        "gpu_runtime": runtime,
        "disk_full": any(fault.disk_full for fault in faults),
        "image_env": [fault.image_env for fault in faults if fault.image_env],
        "drop": any(fault.drop for fault in faults),
        "ports": sorted(set(ports)),
        "taken": [
            {"address": address, "port": port, "program": "python3", "pid": 4242}
            for address, port in (sorted(set(ports)) if taken else ())
        ],
        "docker_root": "/var/lib/docker",
    }
    place.write(str(folder), place.SETTINGS, settings)
    _daemon(folder, runtime=runtime)


def _engine_env(faults: Iterable[Fault]) -> dict[str, str]:
    env = {"STANDIN_LOAD_SECONDS": "0.3"}
    for fault in faults:
        env |= {"STANDIN_CUDA": str(fault.cuda)} if fault.cuda else {}
        env |= {"STANDIN_FAULT": fault.engine} if fault.engine else {}
        env |= {"STANDIN_LOAD_SECONDS": str(fault.load_seconds)} if fault.load_seconds else {}
    return env


def _daemon(folder: Path, *, runtime: bool) -> None:
    """What /proc would show of dockerd: whether the NVIDIA hook is on its PATH."""
    sbin = folder / place.PROC / "sbin"
    sbin.mkdir(parents=True, exist_ok=True)
    hook = sbin / "nvidia-container-runtime-hook"
    hook.unlink(missing_ok=True)
    if runtime:
        _program(hook, "true")
    one = folder / place.PROC / "1"
    one.mkdir(exist_ok=True)
    (one / "comm").write_text("dockerd\n", encoding="utf-8")
    (one / "environ").write_bytes(f"PATH={sbin}\0LANG=C\0".encode())
