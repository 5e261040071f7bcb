"""One HTTP exchange over a real session: over its channels, and by the host's curl where sshd forbids forwarding."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from beamdeploy.recipe import load_recipe
from beamdeploy.remote import open_session
from beamdeploy.sandbox.chat import Model
from beamdeploy.sandbox.gateway import Front, serve
from beamdeploy.served import Served, served_by
from beamdeploy.smoke import CHECKS, smoke
from tests.integration.command import BEAM
from tests.integration.sshd import free_port, sshd

NAME = "Beam-1.0-501B-A23B"


@pytest.fixture
def served() -> Iterator[Served]:
    """The stand-in's gateway on a free port of this machine."""
    port = free_port()
    server = serve(Front(Model(NAME, max_input=131071)), "127.0.0.1", port)
    recipe = load_recipe(str(BEAM), (("container.publish", f"127.0.0.1:{port}"),))
    yield served_by(recipe)
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("setting", ["AllowTcpForwarding yes", "AllowTcpForwarding no"])
def test_the_contract_holds_with_and_without_forwarding(served: Served, setting: str) -> None:
    # not pytest's tmp_path: sshd reads the keys of a plain user as that user
    with (
        tempfile.TemporaryDirectory(prefix="bd-sshd-", dir="/tmp") as path,
        sshd(Path(path), setting) as server,
        open_session(server.host()) as session,
    ):
        outcomes = smoke(served.way(session), served, ("all",), lambda phase, detail: None)
    told = {each.check: each.verdict for each in outcomes}
    expected = {**dict.fromkeys(CHECKS, "pass"), "acceptance": "skip"}
    # 130 thousand words are no word of a command line
    assert told == (expected if "yes" in setting else {**expected, "too-long": "skip"})
