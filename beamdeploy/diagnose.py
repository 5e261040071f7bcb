"""What a failed docker command meant, in the recipe's words."""

from __future__ import annotations

import re
from dataclasses import dataclass

from beamdeploy.errors import Problem
from beamdeploy.remote import Result


@dataclass(frozen=True)
class Sign:
    """A text that docker or a registry prints, the cause, and what to do."""

    text: str
    what: str
    remedy: str


# Texts of docker 20.10 to 28, of its init (tini 0.19), and of the distribution registry.
# The order matters: the first that matches is said.
SIGNS = (
    Sign(
        r"could not select device driver|nvidia-container-cli|unknown or invalid runtime name: nvidia",
        "docker on this host cannot reach the GPUs",
        "Install the NVIDIA Container Toolkit there, run `nvidia-ctk runtime configure --runtime=docker`, and restart "
        "the docker daemon.",
    ),
    Sign(
        r"port is already allocated|bind: address already in use|failed to bind host port|ports are not available",
        "the port of container.publish is taken by another program",
        "Stop it, or choose another port in container.publish.",
    ),
    Sign(
        r"container name .* is already in use",
        "a container of this name is there",
        "Look at `docker ps -a` on the host: another run may have made it. Apply again.",
    ),
    Sign(
        r"exec: .*: executable file not found|exec: .*no such file or directory|exec \S+ failed: No such file",
        "the image has no such program: it is not an image of this engine, or its entrypoint is elsewhere",
        "Check image.reference and engine.name.",
    ),
    Sign(
        r"exec: .*permission denied|exec format error|exec \S+ failed: (Permission denied|Exec format error)",
        "the image's program cannot be executed",
        "Check image.reference: the file is not executable, or was built for another architecture.",
    ),
    Sign(
        r"bind source path does not exist",
        "the weights folder is not on the host",
        "Check model_dir in the inventory.",
    ),
    Sign(
        r"toomanyrequests|rate limit",
        "the registry's pull limit for this address or account is reached",
        "Run `docker login` on the host, or wait.",
    ),
    Sign(
        r"pull access denied|unauthorized|authentication required|denied: ",
        "the registry refused: the image's name is wrong, or this host is not logged in",
        "Check image.reference, or run `docker login` on the host.",
    ),
    Sign(
        r"manifest unknown|manifest for .* not found|not found: manifest",
        "the repository holds no such digest or tag",
        "Check image.reference and the lock: a typo, another repository, or a deleted image.",
    ),
    Sign(
        r"current time .* is before|certificate has expired or is not yet valid",
        "the registry's certificate is not valid at this host's time: its clock may be wrong",
        "Run `date` on the host.",
    ),
    Sign(r"proxyconnect", "the docker daemon's proxy does not answer", "Check the daemon's proxy setting on the host."),
    Sign(
        r"no such host|server misbehaving|Temporary failure in name resolution",
        "the host cannot resolve the registry's name",
        "Check DNS and the route to the registry on the host.",
    ),
    Sign(
        r"connection refused|i/o timeout|Client\.Timeout|network is unreachable|no route to host",
        "the host cannot reach the registry",
        "Check the route and the proxy from the host.",
    ),
    Sign(
        r"no space left on device",
        "docker's file system is full, in bytes or in inodes",
        "Compare `df -h` and `df -i` for docker's root folder on the host. beamdeploy prunes nothing by itself.",
    ),
    Sign(
        r"permission denied while trying to connect to the [Dd]ocker daemon",
        "this user may not use docker",
        "Add the user to the docker group on the host, or set `become: true` in the inventory.",
    ),
    Sign(
        r"Cannot connect to the Docker daemon",
        "the docker daemon does not run",
        "Start it on the host: systemctl start docker.",
    ),
)


def docker_failure(result: Result, where: str) -> Problem:
    """Why a docker command failed; docker's own last line is kept."""
    text = result.err.strip() or result.out.strip()
    line = next((row for row in reversed(text.splitlines()) if row.strip() and "--help" not in row), "")
    sign = _sign(text)
    if result.exit == 124:
        return Problem(f"{_said(result)} did not end in time", "Look at the docker daemon's log on the host.", where)
    if sign is not None:
        return Problem(f"{sign.what} (docker: {line})", sign.remedy, where)
    if result.exit == 127:
        return not_on_path(where)
    ended = "ended abnormally" if result.exit is None else f"failed with exit code {result.exit}"
    return Problem(f"{_said(result)} {ended}: {line}", "Run it by hand on the host to see more.", where)


def program_failure(log: str) -> Sign | None:
    """Why the image's program never ran: with --init docker starts the init, and only the log tells. None: it ran."""
    lines = log.strip().splitlines()
    return _sign(lines[-1]) if lines and lines[-1].startswith("[FATAL tini") else None


def _sign(text: str) -> Sign | None:
    return next((sign for sign in SIGNS if re.search(sign.text, text)), None)


def not_on_path(where: str) -> Problem:
    """docker is not found by a session without a terminal, whatever a login shell finds."""
    return Problem(
        "docker is not on the PATH of non-interactive SSH sessions",
        "Give its full path in the inventory: docker: /usr/local/bin/docker",
        where,
    )


def _said(result: Result) -> str:
    return " ".join(result.words[:2])
