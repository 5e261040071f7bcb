"""The image of the stand-in engine: a root file system with this machine's Python, and its registry."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import io
import json
import os
import py_compile
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import beamdeploy

PACKAGE = Path(beamdeploy.__file__).resolve().parent
REPOSITORY = "lightseekorg/tokenspeed"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "beamdeploy-lab"
"""Where finished registries are kept between runs: the user's own, whatever cache a run gives beamdeploy."""
VARIANTS: Mapping[str, tuple[str, ...]] = {
    # tag → what its image's environment adds; each has its own digest
    "beam": (),
    "beam-next": ("STANDIN_BUILD=2",),
    "beam-broken": ("STANDIN_FAULT=crash-at-start",),
    "beam-late": ("STANDIN_FAULT=bad-gateway-flag-late",),
    "0.1.1": ("BEAMDEPLOY_STANDIN_CATALOG=0.1.1",),
}
PROGRAMS = ("engine", "solo", "cuda", "probes")
"""Of the sandbox, what runs in the image."""
WANTED = (
    # what a program that is run in it imports besides: a probe, a test, Python itself at its start
    *("argparse", "base64", "contextlib", "ctypes", "dataclasses", "email.parser", "hashlib", "io", "json", "os", "re"),
    *("select", "shutil", "site", "socket", "subprocess", "tempfile", "threading", "time", "traceback", "typing"),
    *("urllib.request", "zipfile"),
    *("encodings.ascii", "encodings.cp437", "encodings.idna", "encodings.latin_1", "encodings.utf_8", "unicodedata"),
    # hashlib's own, so that no libcrypto has to be there
    *("_blake2", "_md5", "_sha1", "_sha2", "_sha256", "_sha3", "_sha512"),
)
ELSEWHERE = ("_hashlib", "_ssl")
"""Compiled modules that do without: they need libraries that are larger than all the rest."""
SCRIPT = """#!{python} -IS
import sys
sys.path.insert(0, "/opt/standin")
from beamdeploy.sandbox.engine import main
sys.exit(main(sys.argv[1:]))
"""
SOLO = """#!{python} -IS
import sys
sys.path.insert(0, "/opt/standin")
from beamdeploy.sandbox.solo import main
sys.exit(main("{name}", sys.argv[1:]))
"""


SHIMS: Mapping[str, str] = {
    # what a check inside the image imports from the real one
    "sitecustomize.py": "from beamdeploy.sandbox.cuda import put_in_place\n\nput_in_place()\n",
    "smg/__init__.py": "",
    "smg/smg_rs.py": "from beamdeploy.sandbox.probes import "
    "get_available_reasoning_parsers, get_available_tool_call_parsers  # noqa: F401\n",
    "smg/launch_router.py": "from beamdeploy.sandbox.probes import parse_router_args  # noqa: F401\n",
    "tokenspeed/__init__.py": '__version__ = "0.1.1"\n',
    "tokenspeed/runtime/__init__.py": "",
    "tokenspeed/runtime/utils/__init__.py": "",
    "tokenspeed/runtime/utils/server_args.py": "from beamdeploy.sandbox.probes import ServerArgs  # noqa: F401\n",
}


def sources() -> dict[str, Path]:
    """Path in the image → file here, of the stand-in's own code and data."""
    names = [PACKAGE / "__init__.py", *sorted((PACKAGE / "sandbox").glob("*.py"))]
    for engine in ("tokenspeed", "vllm", "sglang"):
        names += sorted((PACKAGE / "engines" / engine).glob("flags-*.json"))
    return {f"opt/standin/beamdeploy/{path.relative_to(PACKAGE)}": path for path in names}


def key() -> str:
    """What the image depends on, as a short hash."""
    digest = hashlib.sha256(f"{sys.version} {sys.base_prefix} {dict(VARIANTS)} {dict(SHIMS)}".encode())
    for path in (Path(__file__), *sources().values()):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def python() -> Path:
    """The interpreter itself, not the link in a virtual environment."""
    return Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}").resolve()


def linked_libraries(paths: list[Path]) -> set[Path]:
    """What the dynamic linker would load for these files, by `ldd`."""
    words = ("ldd", *map(str, paths))
    listed = subprocess.run(words, capture_output=True, text=True, check=False).stdout
    found = {word for line in listed.splitlines() for word in line.split() if word.startswith("/") and ":" not in word}
    return {Path(word) for word in found}


def library() -> list[Path]:
    """The modules of the standard library that are imported in the image, compiled ones among them."""
    folder = Path(sysconfig.get_path("stdlib"))
    wanted = [*(f"beamdeploy.sandbox.{name}" for name in PROGRAMS), *WANTED]
    code = (
        "import importlib, importlib.util as util, json, sys; sys.path.insert(0, sys.argv[1]);"
        "[importlib.import_module(name) for name in sys.argv[2:] if '.' in name or util.find_spec(name)];"
        "print(json.dumps([getattr(module, '__file__', None) for module in list(sys.modules.values())]))"
    )
    words = (str(python()), "-IS", "-c", code, str(PACKAGE.parent), *wanted)
    named = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    paths = {Path(name) for name in named if name} | {folder / "os.py"}
    ours = (path for path in paths if path.is_relative_to(folder) and not path.name.startswith(ELSEWHERE))
    return sorted(ours)


def files() -> dict[str, Path]:
    """Path in the image → file here."""
    modules = library()
    programs = [python(), *(path for path in modules if path.suffix == ".so")]
    held = {str(path).lstrip("/"): path for path in [*programs, *linked_libraries(programs), *modules]}
    return held | sources() | {"bin/busybox": Path("/bin/busybox")}


def write_rootfs(target: Path) -> None:
    """Write the root file system as a tar."""
    with tarfile.open(target, "w", dereference=True) as tar, tempfile.TemporaryDirectory() as folder:
        for name, path in sorted(files().items()):
            tar.add(_lean(path.resolve(), Path(folder, "stripped")), arcname=name, recursive=False)
            if path.suffix == ".py":
                tar.add(_compiled(path, name, Path(folder, "compiled")), arcname=_cached(name), recursive=False)
        for name in ("sh", "cat", "ls", "sleep", "env", "kill", "ps", "true", "wget"):
            _link(tar, f"bin/{name}", "busybox")
        for name in ("python3", "python"):
            _link(tar, f"usr/local/bin/{name}", str(python()))
        _text(tar, "usr/local/bin/tokenspeed", SCRIPT.format(python=python()), 0o755)
        _link(tar, "usr/local/bin/ts", "tokenspeed")
        for name in ("vllm", "sglang"):
            _text(tar, f"usr/local/bin/{name}", SOLO.format(python=python(), name=name), 0o755)
        for name, text in SHIMS.items():
            _text(tar, f"opt/standin/{name}", text, 0o644)
        _text(tar, "etc/passwd", "root:x:0:0:root:/root:/bin/sh\n", 0o644)
        for name, mode in (("tmp", 0o1777), ("root", 0o700), ("weights", 0o755)):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, mode
            tar.addfile(entry)


def _lean(path: Path, spare: Path) -> Path:
    """The file, or a copy of a library without what only a debugger reads: an image is pulled a hundred times."""
    if not (path.name.startswith("libpython") or path.suffix == ".so") or shutil.which("strip") is None:
        return path
    subprocess.run(("strip", "--strip-unneeded", "-o", str(spare), str(path)), check=True)
    spare.chmod(0o755)
    return spare


def _compiled(path: Path, name: str, spare: Path) -> Path:
    """The module's bytecode, which every container would otherwise make anew and throw away."""
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(path), str(spare), f"/{name}", doraise=True, invalidation_mode=mode)
    return spare


def _cached(name: str) -> str:
    return importlib.util.cache_from_source(f"/{name}").lstrip("/")


def _link(tar: tarfile.TarFile, name: str, target: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.SYMTYPE, target
    tar.addfile(entry)


def _text(tar: tarfile.TarFile, name: str, text: str, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(text.encode()), mode
    tar.addfile(entry, io.BytesIO(text.encode()))


def docker(socket: Path, *words: str) -> str:
    """What a docker command prints. RuntimeError: it failed."""
    done = subprocess.run(("docker", "--host", f"unix://{socket}", *words), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"docker {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout.strip()


def push_variants(socket: Path, registry: str, rootfs: Path) -> dict[str, str]:
    """Import the image, push each variant, remove all from that daemon; tag → digest."""
    path = "/usr/local/bin:/usr/bin:/bin"
    docker(socket, "import", "--change", f"ENV PATH={path} PYTHONPATH=/opt/standin", str(rootfs), "standin:base")
    created = docker(socket, "create", "standin:base", "tokenspeed")
    digests = {tag: _push(socket, created, f"{registry}/{REPOSITORY}:{tag}", VARIANTS[tag]) for tag in VARIANTS}
    docker(socket, "rm", created)
    # the base last: it has the others as children
    docker(socket, "rmi", "--force", *(f"{registry}/{REPOSITORY}:{tag}" for tag in VARIANTS), "standin:base")
    return digests


def _push(socket: Path, container: str, name: str, environment: tuple[str, ...]) -> str:
    changes = [word for value in environment for word in ("--change", f"ENV {value}")]
    docker(socket, "commit", *changes, container, name)
    docker(socket, "push", "--quiet", name)
    digest = docker(socket, "image", "inspect", "--format", "{{index .RepoDigests 0}}", name)
    return digest.partition("@")[2]


@contextmanager
def alone() -> Iterator[None]:
    """One lab at a time looks for the finished registry, so that several that start at once do not all fill one."""
    CACHE.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(CACHE, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def restore(storage: Path) -> dict[str, str] | None:
    """Put the cached registry's storage in place; tag → digest, or None when nothing is cached for this key."""
    cached = CACHE / key()
    if not (cached / "digests.json").is_file():
        return None
    shutil.copytree(cached / "registry", storage, copy_function=_hard_link, dirs_exist_ok=True)
    digests = json.loads((cached / "digests.json").read_text(encoding="utf-8"))
    return {str(tag): str(digest) for tag, digest in digests.items()}


def _hard_link(source: str, target: str) -> str:
    # a registry never writes into a blob again, so a link is as good as a copy; not so for its small link files
    if Path(source).name == "data":
        try:
            os.link(source, target)
            return target
        except OSError:
            pass
    return str(shutil.copy2(source, target))


def keep(storage: Path, digests: Mapping[str, str]) -> None:
    """Keep a filled registry for the next run; older ones are dropped."""
    folder = CACHE
    folder.mkdir(parents=True, exist_ok=True)
    fresh = folder / f"{key()}.{os.getpid()}"
    shutil.copytree(storage, fresh / "registry")
    (fresh / "digests.json").write_text(json.dumps(digests), encoding="utf-8")
    for old in sorted(folder.glob("*"), key=lambda path: path.stat().st_mtime)[:-4]:
        shutil.rmtree(old, ignore_errors=True)
    try:
        fresh.rename(folder / key())
    except OSError:
        # another run was faster
        shutil.rmtree(fresh, ignore_errors=True)
