"""One HTTP exchange over a real session: over its channels, and by the host's curl where sshd forbids forwarding."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from beamdeploy.endpoint import ask
from beamdeploy.exchange import Request
from beamdeploy.recipe import load_recipe
from beamdeploy.remote import Session, open_session
from beamdeploy.sandbox.chat import Model
from beamdeploy.sandbox.gateway import Front, serve
from beamdeploy.served import Served, served_by
from beamdeploy.smoke import CHECKS, smoke
from tests.integration.command import BEAM
from tests.integration.sshd import free_port, sshd

GOOD = Front(Model("Beam-1.0-501B-A23B", max_input=131071))


@contextmanager
def gateway(front: Front, timeout: str = "120s") -> Iterator[Served]:
    """The stand-in's gateway on a free port of this machine."""
    port = free_port()
    server = serve(front, "127.0.0.1", port)
    overrides = (("container.publish", f"127.0.0.1:{port}"), ("smoke.timeout", timeout))
    yield served_by(load_recipe(str(BEAM), overrides))
    server.shutdown()
    server.server_close()


@contextmanager
def session(*options: str) -> Iterator[Session]:
    """A session to an sshd on this machine. Not pytest's tmp_path: sshd reads the keys of a user as that user."""
    with (
        tempfile.TemporaryDirectory(prefix="bd-sshd-", dir="/tmp") as path,
        sshd(Path(path), *options) as server,
        open_session(server.host()) as opened,
    ):
        yield opened


def verdicts(opened: Session, served: Served) -> dict[str, str]:
    outcomes = smoke(served.way(opened), served, ("all",), lambda phase, detail: None)
    return {each.check: each.verdict for each in outcomes}


@pytest.mark.parametrize("setting", ["AllowTcpForwarding yes", "AllowTcpForwarding no"])
def test_the_contract_holds_with_and_without_forwarding(setting: str) -> None:
    with gateway(GOOD) as served, session(setting) as opened:
        told = verdicts(opened, served)
    expected = {**dict.fromkeys(CHECKS, "pass"), "acceptance": "skip"}
    # 130 thousand words are no word of a command line
    assert told == (expected if "yes" in setting else {**expected, "too-long": "skip"})


@pytest.mark.parametrize("setting", ["AllowTcpForwarding yes", "AllowTcpForwarding no"])
def test_a_front_that_answers_while_the_engine_hangs_costs_one_timeout(setting: str) -> None:
    with gateway(replace(GOOD, hangs=True), "1s") as served, session(setting) as opened:
        began = time.monotonic()
        told = verdicts(opened, served)
    assert told == {**dict.fromkeys(CHECKS, "skip"), "models": "pass", "completion": "fail"}
    assert time.monotonic() - began < 10


def test_nothing_that_answers_is_said_as_such() -> None:
    with gateway(GOOD) as served:
        pass  # it is gone again
    with session() as opened:
        heard = served.way(opened)(Request("/v1/models"), 5, None)
    assert (heard.status, heard.reason.startswith("nothing answers there")) == (None, True)


@pytest.mark.parametrize("tool", ["curl", "wget"])
def test_get_and_post_go_by_the_tool_that_the_host_has(tool: str, tmp_path: Path) -> None:
    for program in ("sh", "timeout", "base64", tool):
        (tmp_path / program).symlink_to(str(shutil.which(program)))
    tmp_path.chmod(0o755)
    with gateway(GOOD) as served, session("AllowTcpForwarding no", f"SetEnv PATH={tmp_path}") as opened:
        asked = partial(ask, opened, "127.0.0.1", served.recipe.container.port)
        listed = asked("/v1/models")
        body = {"model": served.model, "messages": [{"role": "user", "content": "it's\n\\me"}], "max_tokens": 8}
        answered = asked("/v1/chat/completions", body=body)
        refused = asked("/v1/chat/completions", body={"model": "another"})
    assert (listed.status, served.model in listed.body) == (200, True)
    assert (answered.status, json.loads(answered.body)["object"]) == (200, "chat.completion")
    assert refused.status is not None and refused.status >= 400
