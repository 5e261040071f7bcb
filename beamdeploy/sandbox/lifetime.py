"""Start, find and end sandboxes: `up`, `down`, `status`."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from beamdeploy import caches
from beamdeploy.errors import FAILED, HostError, InputError, Problem
from beamdeploy.recipe import Recipe
from beamdeploy.sandbox import furnish, groups, keys, locks, place, stage
from beamdeploy.sandbox.docker import store
from beamdeploy.sandbox.profiles import DEFAULT, faults_named, profile_for, profile_named, profiles

NAME = "sandbox"
VARIABLE = "BEAMDEPLOY_SANDBOX"
PORTS = (("127.0.0.1", 8000),)


@dataclass(frozen=True)
class Running:
    """A sandbox that takes connections. `inventory`: the file that names it as an ordinary ssh host."""

    name: str
    folder: Path
    profile: str
    faults: tuple[str, ...]
    port: int
    pid: int

    @property
    def inventory(self) -> Path:
        return self.folder / place.INVENTORY


def home(environ: Mapping[str, str]) -> Path:
    """The folder of all sandboxes of this user. InputError: there is no cache folder."""
    cache = caches.folder(environ)
    if cache is None:
        remedy = "Set HOME or XDG_CACHE_HOME to a whole path."
        raise InputError([Problem("there is no cache folder for a sandbox: HOME is empty or relative", remedy)])
    return cache / "sandbox"


def folder_of(name: str | None, environ: Mapping[str, str]) -> Path:
    """The folder of a sandbox; None: of the one that $BEAMDEPLOY_SANDBOX names, else "default".

    InputError: the name is none. It becomes a folder that `down` removes, so it may lead nowhere else.
    """
    chosen = name or environ.get(VARIABLE) or "default"
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}", chosen):
        remedy = "Letters, digits, '_' and '-', beginning with a letter or digit."
        raise InputError([Problem(f"{chosen!r} is not a sandbox's name", remedy, f"--name, ${VARIABLE}")])
    return home(environ) / chosen


def up(
    profile: str | None,
    folder: Path,
    faults: Iterable[str] | None = None,
    *,
    recipes: Iterable[Recipe] = (),
) -> Running:
    """The sandbox of that folder: started, or brought back if it was killed, and with these recipes' weights staged.

    `profile` and `faults` None: as they are; a new sandbox fits the first recipe and has no fault. InputError: there is
    no such profile or fault. HostError: it does not start.
    """
    recipes = tuple(recipes)
    _make_home(folder.parent)
    folder = folder.absolute()
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with locks.locked(str(folder.parent)):
        held = place.read(str(folder), place.SETTINGS)
        name = profile or (held["profile"]["name"] if held else _fitting(recipes))
        wrong = faults if faults is not None else held["faults"] if held else ()
        chosen, chosen_faults = profile_named(name), faults_named(wrong)
        if held is None:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(mode=0o700)
            furnish.furnish(folder)
        ports = {(str(address), int(port)) for address, port in (held["ports"] if held else PORTS)}
        ports |= {(recipe.container.address, recipe.container.port) for recipe in recipes}
        furnish.emulate(folder, chosen, chosen_faults, ports)
        stage.stage(folder, recipes)
        server = _server(folder)
        _write_inventory(folder, chosen.name, server["port"])
    return Running(folder.name, folder, chosen.name, tuple(wrong), server["port"], server["pid"])


def _fitting(recipes: tuple[Recipe, ...]) -> str:
    wanted = recipes[0].hardware if recipes else None
    found = profile_for(wanted.gpu, wanted.count) if wanted else None
    return found.name if found else DEFAULT


def status(folder: Path) -> Running | None:
    """The sandbox of that folder; None: it does not run."""
    held, server = place.read(str(folder), place.SETTINGS), place.read(str(folder), place.SERVER)
    if held is None or server is None or not locks.held(str(folder / place.SERVER_LOCK)):
        return None
    return Running(folder.name, folder, held["profile"]["name"], tuple(held["faults"]), server["port"], server["pid"])


def all_of(environ: Mapping[str, str]) -> tuple[Path, ...]:
    """The folders of all sandboxes of this user, whether they run or not."""
    root = home(environ)
    return tuple(sorted(each for each in root.iterdir() if each.is_dir())) if root.is_dir() else ()


def _make_home(home: Path) -> None:
    """InputError: the user's cache folder cannot be used."""
    try:
        # each by itself: `parents` takes no mode, and nothing is kept in a folder that others may write to
        for each in (home.parent, home):
            each.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        remedy = "Set XDG_CACHE_HOME to a folder that can be written."
        raise InputError([Problem(f"{home} cannot be made: {error.strerror}", remedy)]) from error


def down(folder: Path) -> bool:
    """End all that lives in a sandbox and remove its folder; False: there was none."""
    folder = folder.absolute()
    if not folder.is_dir():
        return False
    with locks.locked(str(folder.parent)):
        _end_server(folder)
        for lock in (folder / place.JOBS).glob("*.lock"):
            groups.end(str(lock), 1)
        # without this file every keeper ends its container by itself
        (folder / place.USED).unlink(missing_ok=True)
        containers = folder / place.CONTAINERS
        for container in containers.iterdir() if containers.is_dir() else ():
            groups.kill(str(container / store.ENGINE), signal.SIGKILL)
        for container in containers.iterdir() if containers.is_dir() else ():
            locks.free_within(str(container / store.ALIVE), 5)
        shutil.rmtree(folder, ignore_errors=True)
    return True


def _end_server(folder: Path) -> None:
    server, lock = place.read(str(folder), place.SERVER), str(folder / place.SERVER_LOCK)
    for number, seconds in ((signal.SIGTERM, 3.0), (signal.SIGKILL, 3.0)):
        if server is None or not locks.held(lock):
            return
        # held, so the pid is the server's
        with suppress(ProcessLookupError):
            os.kill(server["pid"], number)
        locks.free_within(lock, seconds)


def _server(folder: Path) -> dict[str, Any]:
    """The living server, or a new one. HostError: it does not start."""
    lock = str(folder / place.SERVER_LOCK)
    held = place.read(str(folder), place.SERVER)
    if held is not None and locks.held(lock):
        return held
    (folder / place.USED).touch()
    ours, theirs = os.pipe()
    # started by a shell that ends at once: nobody has to wait for it, and no signal of our terminal reaches it
    words = (sys.executable, "-m", "beamdeploy.sandbox.server", str(folder), str(theirs))
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((furnish.PACKAGES, *filter(None, (os.environ.get("PYTHONPATH"),)))),
    }
    with open(folder / place.SERVER_LOG, "ab") as log:
        shell = ("/bin/sh", "-c", '"$@" &', "sh", *words)
        subprocess.run(
            shell, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=(theirs,), start_new_session=True,
            cwd=folder, env=env, check=True,
        )  # fmt: skip
    os.close(theirs)
    answer = os.read(ours, 16)
    os.close(ours)
    server = place.read(str(folder), place.SERVER)
    if not answer or server is None:
        raise HostError(_dead(folder), exit=FAILED)
    return server


def _dead(folder: Path) -> Problem:
    log = folder / place.SERVER_LOG
    said = log.read_text(encoding="utf-8", errors="replace").strip()[-400:] if log.exists() else ""
    remedy = f"see {log}; `beamdeploy sandbox down` removes what is left"
    return Problem(f"the sandbox's SSH server does not start: {said or 'it said nothing'}", remedy, where=folder.name)


def _write_inventory(folder: Path, profile: str, port: int) -> None:
    key = keys.line(folder / place.HOST_KEY)
    (folder / place.KNOWN_HOSTS).write_text(f"[127.0.0.1]:{port} {key}\n", encoding="utf-8")
    variables = {
        "address": "127.0.0.1",
        "port": port,
        "user": place.LOGIN,
        "identity_file": str(folder / place.USER_KEY),
        "known_hosts": str(folder / place.KNOWN_HOSTS),
        "model_dir": str(folder / place.MODELS),
        "state_dir": str(folder / place.STATE),
    }
    name = NAME if folder.name == "default" else f"{NAME}-{folder.name}"
    tree = {"all": {"hosts": {name: variables}}}
    head = f"# written by `beamdeploy sandbox`: an emulated {profile} server; there is no GPU behind it\n"
    # JSON is YAML, and quotes whatever a folder may be called
    place_of = folder / place.INVENTORY
    fresh = place_of.with_suffix(f".{os.getpid()}")
    fresh.write_text(head + json.dumps(tree, indent=2) + "\n", encoding="utf-8")
    os.replace(fresh, place_of)


def names() -> tuple[str, ...]:
    """The profiles that there are."""
    return tuple(profiles())


def age(folder: Path) -> float:
    """Seconds since somebody used it."""
    return time.time() - (folder / place.USED).stat().st_mtime
