"""Group A: docker's own ways."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from beamdeploy.act import act
from beamdeploy.diagnose import docker_failure
from beamdeploy.errors import HostError
from beamdeploy.inventory import load_inventory
from beamdeploy.look import look
from beamdeploy.plan import Plan, plan_apply
from beamdeploy.recipe import load_recipe
from beamdeploy.remote import Result, open_session
from beamdeploy.render import Spec, render
from beamdeploy.survey import question
from tests.cases.conftest import Render
from tests.cases.intent import load
from tests.cases.recorder import SHELLS, recorded, sent
from tests.integration.command import Job, container_id
from tests.lab import LabHost

GPUS = '"device=0,1,2,3"'
CRASH = {"container.env": {"STANDIN_FAULT": "crash-at-start"}}


@pytest.mark.parametrize("shell", SHELLS)
def test_a01_the_list_of_gpus_keeps_its_quotes_through_the_login_shell(
    render: Render, tmp_path: Path, shell: str
) -> None:
    words = render(load()).host("gpu-a")["words"]
    assert (words.count("--gpus"), words[words.index("--gpus") + 1], len(GPUS)) == (1, GPUS, 16)
    assert list(sent(shell, words, tmp_path / "bin")) == words


def test_a01_the_other_words_are_those_that_a_managed_server_needs(render: Render) -> None:
    words = render(load()).host("gpu-a")["words"]
    assert "--init" in words and words[words.index("--entrypoint") + 1] == "tokenspeed"
    assert words[words.index("--mount") + 1] == "type=bind,src=/srv/models/beam,dst=/weights,readonly"
    assert words[words.index("-p") + 1].startswith("127.0.0.1:")
    assert not [word for word in words if word in ("-v", "--volume", "--gpus=all") or word.startswith("--volume=")]


@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_a01_what_is_shown_can_be_pasted(render: Render, tmp_path: Path, shell: str) -> None:
    wanted = load()
    words, shown = render(wanted).host("gpu-a")["words"], render(wanted, "text").out
    assert f"--gpus '{GPUS}'" in shown
    assert list(recorded(shell, shown, tmp_path / "bin")) == words


@pytest.mark.parametrize("login", ["root", "sh", "tcsh", "fish"])
def test_a01_docker_gives_out_the_four_gpus_whatever_the_login_shell_is(
    job: Job, clean_host: LabHost, name: str, login: str
) -> None:
    job.write_inventory(user=login)
    run = next(step for step in job.run("plan").host(name)["plan"]["steps"] if step["kind"] == "run")
    assert run["words"] == job.run("render").host(name)["words"]
    assert job.run("apply").exit == 0
    [asked] = json.loads(clean_host.docker("inspect", "--format", "{{json .HostConfig.DeviceRequests}}", "beam"))
    assert (asked["Count"], asked["DeviceIDs"]) == (0, ["0", "1", "2", "3"])


@contextmanager
def listening(job: Job, host: LabHost) -> Iterator[str]:
    """A program of a stranger that listens on the recipe's port; the id of its container."""
    held = host.docker(
        "run", "--detach", "--network", "host", "--entrypoint", "python3", job.lab.image("beam"),
        "-m", "http.server", "--bind", "127.0.0.1", "8000",
    ).strip()  # fmt: skip
    until = time.monotonic() + 10
    while ":1F40 00000000:0000 0A" not in host.run("cat", "/proc/net/tcp"):
        assert time.monotonic() < until, "nothing listens"
        time.sleep(0.05)
    yield held
    assert held in host.docker("ps", "--quiet", "--no-trunc"), "the other program was stopped"
    host.docker("rm", "--force", held)


def test_a05_a_port_that_another_program_holds_is_told_before_anything_changes(
    job: Job, clean_host: LabHost, name: str
) -> None:
    clean_host.docker("pull", job.lab.image("beam"))
    with listening(job, clean_host):
        for _ in range(2):
            done = job.run("apply")
            assert (done.exit, done.host(name)["outcome"]) == (3, "blocked")
            assert f"{name}: port" in done.problems and "port 127.0.0.1:8000 is taken by python3" in done.problems
            assert container_id(clean_host) == ""


def specified(job: Job) -> Spec:
    [host] = load_inventory(job.inventory, environ={}).hosts
    return render(load_recipe(job.recipe), host, None)


def planned(job: Job) -> tuple[Spec, Plan]:
    """The plan of now, to be carried out later."""
    spec = specified(job)
    with open_session(spec.host) as session:
        return spec, plan_apply(spec, look(session, question(spec)))


def acted(spec: Spec, plan: Plan) -> HostError:
    with open_session(spec.host) as session, pytest.raises(HostError) as caught:
        act(session, spec, plan, lambda phase, detail: None)
    return caught.value


def test_a05_a_port_that_is_taken_after_the_look_leaves_no_husk(job: Job, clean_host: LabHost, name: str) -> None:
    clean_host.docker("pull", job.lab.image("beam"))
    spec, plan = planned(job)
    assert [step.kind for step in plan.steps] == ["probe", "try GPUs", "run", "settle"]
    said = []
    with listening(job, clean_host):
        for _ in range(2):
            problem = acted(spec, plan).problems[0]
            assert problem.what.startswith("the port of container.publish is taken by another program (docker: ")
            said.append(problem.what.partition(" (docker")[0])
            assert container_id(clean_host) == ""
        assert job.run("apply").exit == 3
    assert said[0] == said[1]


PORT = "the port of container.publish is taken by another program"
NAME = "a container of this name is there"
FAILED = "docker: Error response from daemon: "


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("driver failed programming external connectivity on endpoint beam (ab12): Error starting userland proxy: "
         "listen tcp4 127.0.0.1:8000: bind: address already in use", PORT),
        ("driver failed programming external connectivity on endpoint beam (ab12): Bind for 127.0.0.1:8000 failed: "
         "port is already allocated", PORT),
        ('Conflict. The container name "/beam" is already in use by container "c0ffee". You have to remove (or '
         "rename) that container to be able to reuse that name.", NAME),
    ],
)  # fmt: skip
def test_a05_both_wordings_are_a_port_conflict_and_the_name_conflict_is_none(text: str, meaning: str) -> None:
    result = Result(("docker", "run"), 125, "c0ffee\n", f"{FAILED}{text}.\nSee 'docker run --help'.\n")
    assert docker_failure(result, "gpu-a: run").what.startswith(f"{meaning} (docker: {FAILED}")


def test_a07_a_server_that_ends_at_its_start_is_told_with_code_and_log(
    job: Job, clean_host: LabHost, name: str
) -> None:
    clean_host.docker("pull", job.lab.image("beam"))
    job.write(CRASH)
    assert "--rm" not in job.run("render").host(name)["words"]
    for _ in range(2):
        began = time.monotonic()
        done = job.run("apply")
        assert time.monotonic() - began < 20
        assert (done.exit, done.host(name)["outcome"]) == (1, "failed")
        code = clean_host.docker("inspect", "--format", "{{.State.ExitCode}}", "beam").strip()
        assert f"the server ended with exit code {code}" in done.problems
        assert "NCCL error" in done.problems
        assert "NCCL error" in job.run("logs").out


def test_a07_a_restart_loop_is_recognised_by_its_count(job: Job, clean_host: LabHost, name: str) -> None:
    job.write(
        {
            **CRASH,
            "container.restart": "always",
        }
    )
    began = time.monotonic()
    done = job.run("apply")
    # seconds, with room for a busy machine; the limits of readiness are 10 and 45 minutes
    assert time.monotonic() - began < 90
    assert (done.exit, done.host(name)["outcome"]) == (1, "failed")
    assert "the server restarts again and again (" in done.problems and "NCCL error" in done.problems
    assert int(clean_host.docker("inspect", "--format", "{{.RestartCount}}", "beam")) >= 2


def test_a09_a_misspelt_folder_of_weights_is_told_before_the_running_server_is_touched(
    job: Job, clean_host: LabHost, name: str
) -> None:
    assert job.run("apply").exit == 0
    before = container_id(clean_host)
    misspelt = load("A09").variables["model_dir"]
    job.write_inventory(model_dir=misspelt)
    # another image, which would have to be pulled
    job.write({"image": {"reference": f"{job.lab.registry}/lightseekorg/tokenspeed@{job.lab.images['beam-next']}"}})
    for _ in range(2):
        done = job.run("apply")
        assert (done.exit, done.host(name)["outcome"]) == (3, "blocked")
        for part in (f"{misspelt}/nvfp4", "model.weights.path", "model_dir", f"{name}:"):
            assert part in done.problems
        assert container_id(clean_host) == before
        assert job.lab.images["beam-next"] not in clean_host.docker("images", "--digests")
        assert not (clean_host.folder / "srv" / "modles").exists()
    words = job.run("render").host(name)["words"]
    assert "-v" not in words and not [word for word in words if word.startswith("--volume")]


def built_there(host: LabHost, source: str, tag: str) -> str:
    """An image that was never pulled; its id."""
    host.docker("pull", source)
    made = host.docker("create", source, "x").strip()
    built = host.docker("commit", made, tag).strip()
    host.docker("rm", made)
    return built


def test_a11_an_image_that_was_built_there_has_no_digest_to_pin(job: Job, clean_host: LabHost, name: str) -> None:
    built = built_there(clean_host, job.lab.image("beam"), "lightseekorg/local:beam")
    job.write({"image": {"reference": "lightseekorg/local:beam"}})
    for _ in range(2):
        done = job.run("lock", "--from", name)
        assert done.exit == 1
        assert f"{name}:" in done.problems and "no registry digest" in done.problems
        assert "it was built or loaded there, not pulled" in done.problems
        assert "Pull it from a registry" in done.problems
        assert "pin it by image id, which is good on this host only: image: {id: sha256:…}" in done.problems
        assert "template" not in done.problems
        assert not list(job.folder.glob("*.lock.yaml*"))
        assert job.run("apply", "--locked").exit == 2
        assert job.run("apply").exit == 2, "the tag alone is not taken"
        assert container_id(clean_host) == ""
    job.write({"image": {"id": built}})
    words = job.run("render").host(name)["words"]
    assert built in words and not [word for word in words if f"@{built}" in word]
    assert job.run("apply").exit == 0


def test_a11_the_host_that_lacks_the_digest_is_named_among_several(job: Job, clean_hosts: tuple[LabHost, ...]) -> None:
    """One host is asked, and the others pull by the digest that it gave: so it is the one that is named."""
    job = Job(job.lab, clean_hosts, job.folder)
    job.write_inventory()
    tag = job.lab.image("beam", pinned=False)
    job.write({"image": {"reference": "lightseekorg/local:beam"}})
    built_there(clean_hosts[1], job.lab.image("beam"), "lightseekorg/local:beam")
    done = job.run("lock", "--from", clean_hosts[1].name)
    assert done.exit == 1
    assert f"{clean_hosts[1].name}:" in done.problems and "built or loaded there, not pulled" in done.problems
    job.write({"image": {"reference": tag}})
    assert job.run("lock", "--from", clean_hosts[0].name).exit == 0
