"""plan, --check, drift and status cannot change a host: by the type of their session, by its refusals, by what runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_type_hints

import pytest

from beamdeploy import deploy, look, preflight, run, secrets, status, survey
from beamdeploy.errors import HostError
from beamdeploy.inventory import Host
from beamdeploy.remote import Looker, open_session
from beamdeploy.remote.read_only import ReadOnly
from tests.integration.command import BEAM, beamdeploy

READS = {"version", "info", "ps", "images", "container inspect", "image inspect"}
WRITES = ("run", "stop", "rm", "rename", "start", "kill", "pull", "exec", "create", "update", "restart", "rmi")


@pytest.fixture
def docker(tmp_path: Path) -> Path:
    """A program that writes down what docker is asked, and fails."""
    program = tmp_path / "docker"
    program.write_text(f'#!/bin/sh\necho "$*" >> {tmp_path}/asked\nexit 1\n', encoding="utf-8")
    program.chmod(0o755)
    return program


def asked(docker: Path) -> list[str]:
    log = docker.parent / "asked"
    return log.read_text(encoding="utf-8").splitlines() if log.exists() else []


def local(docker: Path) -> Host:
    return Host(name="here", connection="local", docker=(str(docker),), state_dir=str(docker.parent / "state"))


@pytest.mark.parametrize("verb", WRITES)
def test_no_writing_command_passes_a_look(docker: Path, verb: str) -> None:
    with open_session(local(docker)) as session:
        looker = run.to_look(session)
        for way in ("run", "follow", "hold", "_run"):
            assert not hasattr(looker, way)
        for text in (f"{docker} {verb} beam", f"{look.script()}\n{docker} {verb} beam", "$1 $2", "rm -rf $1"):
            with pytest.raises(PermissionError):
                looker.script(text, (str(docker), verb), timeout=10)
    assert asked(docker) == []


def test_what_varies_is_never_a_command_of_the_look(docker: Path, tmp_path: Path) -> None:
    made = tmp_path / "made"
    hostile = f"/x; {docker} stop beam; $({docker} rm beam) `touch {made}` ' && touch {made} #"
    host = local(docker)
    question = look.Question(hostile, (f"{hostile}@sha256:{'0' * 64}",), hostile, (hostile,), (80,), host.docker_words)
    with open_session(host) as session:
        look.look(run.to_look(session), question)
    assert not made.exists()
    assert {line.split(" --")[0] for line in asked(docker)} <= READS


def test_the_look_asks_for_no_more_than_a_looker() -> None:
    for function, parameter in (
        (look.look, "session"), (survey.facts_of, "looker"), (secrets.compare, "session"), (status.looked, "looker"),
        (status.deployments, "looker"),
    ):  # fmt: skip
        assert function.__annotations__[parameter] == "Looker"
    assert {name for name in vars(Looker) if not name.startswith("_")} == {"host", "notes", "script", "channel"}
    assert {name for name in vars(ReadOnly) if not name.startswith("_")} == {"host", "notes", "script", "channel"}


def test_plan_holds_nothing_that_could_carry_it_out() -> None:
    assert set(survey.Seen.__dataclass_fields__) == {"spec", "plan"}
    assert get_type_hints(survey.only_look_at_all)["return"] == dict[str, survey.Seen | HostError]
    assert "look_at_all" not in deploy.plan.__code__.co_names and "only_look_at_all" in deploy.plan.__code__.co_names
    assert "remote" not in Path(preflight.__file__).read_text(encoding="utf-8")


def test_what_the_read_only_commands_ask_docker(docker: Path, tmp_path: Path) -> None:
    """The real commands, with a docker that writes down what it is asked."""
    where = tmp_path / "hosts.yaml"
    variables = {"connection": "local", "docker": str(docker), "model_dir": str(tmp_path), "gpus": [0, 1, 2, 3]}
    where.write_text(json.dumps({"all": {"hosts": {"here": variables}}}), encoding="utf-8")
    before = {path for path in tmp_path.rglob("*") if path.name != "asked"}
    for words in (
        ("plan", str(BEAM), "--unpinned"), ("apply", str(BEAM), "--check", "--unpinned"), ("drift", str(BEAM)),
        ("status", str(BEAM)), ("status",),
    ):  # fmt: skip
        beamdeploy(*words, "-i", str(where), "-o", "json")
    told = {line.split(" --")[0] for line in asked(docker)}
    assert told and told <= READS
    assert {path for path in tmp_path.rglob("*") if path.name != "asked"} == before
