"""A docker daemon that is away for a moment."""

from __future__ import annotations

import time
from collections.abc import Callable

from beamdeploy.diagnose import docker_failure
from beamdeploy.errors import HostError
from beamdeploy.inventory import Host
from beamdeploy.remote import Session

_BACK_WITHIN = 60


def wait_for_docker(session: Session, host: Host, say: Callable[[str, str], None]) -> None:
    """A daemon that is started again, as after a crash or an update, is back soon. HostError: it is not."""
    until = time.monotonic() + _BACK_WITHIN
    while not (result := session.run((*host.docker_words, "version"), timeout=60)).ok:
        if time.monotonic() > until:
            raise HostError(docker_failure(result, f"{host.name}: restore"))
        say("restore", "waiting for the docker daemon")
        time.sleep(2)
