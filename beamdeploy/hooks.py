"""Commands of the inventory that run on this machine when something happens to a host."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping

from beamdeploy.errors import HostError, Problem
from beamdeploy.inventory import Host
from beamdeploy.render import Spec

SECONDS = 300
"""A hook that takes longer has failed."""


def facts_of(spec: Spec, container: str | None) -> Mapping[str, object]:
    """What a hook is told."""
    published = spec.recipe.container
    return {
        "host": spec.host.name,
        "name": spec.recipe.name,
        "model": spec.recipe.model.served_name,
        "address": spec.host.address or spec.host.name,
        "endpoint": f"{published.address}:{published.port}",
        "digest": spec.digest,
        "image": spec.image.word,
        "container": container or "",
    }


def run_hook(host: Host, when: str, facts: Mapping[str, object]) -> None:
    """Run the host's hook `when`, if it has one, with the facts as JSON on stdin. HostError: it failed.

    The environment has BEAMDEPLOY_HOOK, and BEAMDEPLOY_HOST, BEAMDEPLOY_NAME, … for each fact that is text or a number.
    """
    words = dict(host.hooks).get(when)
    if words is None:
        return
    plain = {key: str(value) for key, value in facts.items() if isinstance(value, (str, int))}
    told = {f"BEAMDEPLOY_{key.upper()}": value for key, value in {**plain, "hook": when}.items()}
    said = _outcome(words, json.dumps(facts), {**os.environ, **told})
    if said is not None:
        what = f"the hook {when} ({words[0]}) {said}"
        raise HostError(Problem(what, "It is a command of the inventory, run on this machine.", f"{host.name}: {when}"))


def _outcome(words: tuple[str, ...], facts: str, environment: Mapping[str, str]) -> str | None:
    """What went wrong; None: nothing."""
    try:
        done = subprocess.run(
            words,
            input=facts,
            env=environment,
            stdout=subprocess.DEVNULL,  # our stdout is the report's
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            timeout=SECONDS,
            check=False,
        )
    except OSError as error:
        return f"cannot be run: {error.strerror}"
    except subprocess.TimeoutExpired:
        return f"did not end within {SECONDS} s"
    if done.returncode == 0:
        return None
    return f"failed with exit code {done.returncode}: {done.stderr.strip()[-300:]}"
