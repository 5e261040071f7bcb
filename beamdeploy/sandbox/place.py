"""Where everything lies in a sandbox's folder."""

from __future__ import annotations

import json
import os
from typing import Any

SETTINGS = "settings.json"
SERVER = "server.json"
SERVER_LOCK = "server.lock"
SERVER_LOG = "server.log"
USED = "used"
DROP = "drop"
"""There from a start on until somebody follows its log."""
DROPPING = "dropping"
INVENTORY = "inventory.yaml"
USER_KEY = "user_key"
HOST_KEY = "host_key"
KNOWN_HOSTS = "known_hosts"
STAGED = "staged.json"
BIN = "bin"
OWN = "own"
HOME = "home"
TMP = "tmp"
LOCKS = "lock"
JOBS = "jobs"
MODELS = "models"
STATE = "state"
PROC = "proc"
DOCKER = "docker"
CONTAINERS = os.path.join(DOCKER, "containers")
IMAGES = os.path.join(DOCKER, "images")
DOCKER_LOCK = os.path.join(DOCKER, "lock")
IMAGE_BIN = os.path.join("image", "bin")
IMAGE_LIB = os.path.join("image", "lib")
LOGIN = "sandbox"
IDLE_SECONDS = 12 * 3600


def read(folder: str, name: str) -> dict[str, Any] | None:
    """A JSON file of the folder; None: it is not there."""
    try:
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            held: dict[str, Any] = json.load(file)
            return held
    except FileNotFoundError:
        return None


def write(folder: str, name: str, value: object) -> None:
    """Replace a JSON file in one step, so that nobody reads half of it."""
    path = os.path.join(folder, name)
    fresh = f"{path}.{os.getpid()}"
    with open(fresh, "w", encoding="utf-8") as file:
        json.dump(value, file, indent=1)
    os.replace(fresh, path)


def settings(folder: str) -> dict[str, Any]:
    """What is emulated. FileNotFoundError: the folder is no sandbox any more."""
    held = read(folder, SETTINGS)
    if held is None:
        raise FileNotFoundError(os.path.join(folder, SETTINGS))
    return held


def is_over(folder: str, now: float) -> bool:
    """Whether the sandbox is removed, or was not used for so long that it ends by itself."""
    try:
        return now - os.stat(os.path.join(folder, USED)).st_mtime > IDLE_SECONDS
    except FileNotFoundError:
        return True
