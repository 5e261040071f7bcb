"""The main job over a real SSH server onto a real Docker engine, pulling by digest from a real registry."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest

from beamdeploy.label import without_labels
from tests.integration.command import Job, beamdeploy, container_id
from tests.lab import Lab, LabHost

# the image refuses this when it is asked; the recipe asks for it all the same
UNKNOWN = {"quantization.kv_cache": "fp8_e5m2", "engine.unverified": ["quantization.kv_cache"]}
# what no question to the image shows
CRASH = {"container.env": {"STANDIN_FAULT": "crash-at-start"}}


def test_apply_serves_and_a_second_apply_changes_nothing(job: Job, clean_host: LabHost, name: str) -> None:
    first = job.run("apply")
    assert first.exit == 0, first.err
    assert [step["kind"] for step in first.host(name)["plan"]["steps"]] == [
        "pull",
        "probe",
        "try GPUs",
        "run",
        "settle",
    ]
    assert first.host(name)["completion"]["text"]
    made = container_id(clean_host)

    plan = job.run("plan", "--exit-code")
    assert (plan.exit, plan.host(name)["plan"]) == (0, {"outcome": "unchanged", "changes": [], "steps": []})
    second = job.run("apply")
    assert (second.exit, second.host(name)["outcome"]) == (0, "unchanged")
    assert container_id(clean_host) == made


def test_the_words_that_reach_the_process_are_those_that_render_prints(
    job: Job, clean_host: LabHost, name: str
) -> None:
    words = job.run("render").host(name)["words"]
    assert job.run("apply").exit == 0
    argv = json.loads(clean_host.docker("exec", "beam", "cat", "/tmp/beamdeploy-standin-argv.json"))
    whole, phases = job.run("logs").out.splitlines(), job.run("logs", "--phase").out.splitlines()
    names, lines = zip(*(line.split(": ", 1) for line in phases), strict=True)
    assert {"target weights", "KV cache", "ready"} <= set(names) and len(names) == len(set(names))
    assert set(lines) <= {line.strip() for line in whole}
    plain = without_labels(tuple(words))
    assert argv[-len(plain) + plain.index("serve") :] == list(plain[plain.index("serve") :])
    assert job.run("render").host(name)["words"] == words


def test_one_changed_flag_is_named_and_the_server_is_replaced(job: Job, clean_host: LabHost, name: str) -> None:
    assert job.run("apply").exit == 0
    before = container_id(clean_host)
    for value, old in ((4, 8), (2, 4)):
        job.write({"engine.max_num_seqs": value})
        plan = job.run("plan", "--exit-code")
        assert plan.exit == 10
        assert plan.host(name)["plan"]["changes"] == [{"path": "engine.max_num_seqs", "old": old, "new": value}]
        done = job.run("apply")
        assert (done.exit, done.host(name)["outcome"]) == (0, "changed"), done.err
        assert container_id(clean_host) not in ("", before)
        assert container_id(clean_host, "beam.previous") == ""
        before = container_id(clean_host)
        assert job.run("apply").host(name)["outcome"] == "unchanged"


def test_a_killed_container_is_started_again(job: Job, clean_host: LabHost, name: str) -> None:
    assert job.run("apply").exit == 0
    made = container_id(clean_host)
    for _ in range(2):
        clean_host.docker("kill", "beam")
        status = job.run("status")
        assert (status.exit, status.host(name)["deployments"][0]["state"]) == (6, "exited")
        done = job.run("apply")
        assert (done.exit, done.host(name)["plan"]["outcome"]) == (0, "start"), done.err
        assert container_id(clean_host) == made


def test_a_removed_image_is_pulled_by_digest(job: Job, clean_host: LabHost, name: str) -> None:
    for _ in range(2):
        assert job.run("apply").exit == 0
        assert job.run("destroy", "-y").exit == 0
        clean_host.docker("rmi", "--force", job.lab.image("beam"))
    done = job.run("apply")
    assert [step["kind"] for step in done.host(name)["plan"]["steps"]] == ["pull", "probe", "try GPUs", "run", "settle"]


def test_a_missing_shard_blocks_and_nothing_is_touched(job: Job, clean_host: LabHost, name: str) -> None:
    assert job.run("apply").exit == 0
    made = container_id(clean_host)
    shard = sorted((clean_host.models / "nvfp4").glob("*.safetensors"))[0]
    shutil.move(shard, clean_host.folder / "shard")
    job.write({"engine.max_num_seqs": 4})
    for _ in range(2):
        done = job.run("apply")
        assert (done.exit, done.host(name)["outcome"]) == (3, "blocked")
        assert shard.name in done.problems
        assert container_id(clean_host) == made
    shutil.move(clean_host.folder / "shard", shard)
    assert job.run("status").exit == 0


def test_an_unreachable_host_does_not_keep_the_good_one_from_being_done(
    job: Job, clean_host: LabHost, name: str
) -> None:
    gone = {"name": "gone", "address": clean_host.address, "port": 9, "user": "root", "model_dir": "/srv/models/beam"}
    job.write_inventory({**gone, "known_hosts": str(job.lab.known_hosts)})
    first, second = job.run("apply"), job.run("apply")
    assert [(ran.exit, ran.host("gone")["outcome"]) for ran in (first, second)] == [(4, "unreachable")] * 2
    assert (first.host(name)["outcome"], second.host(name)["outcome"]) == ("changed", "unchanged")


def test_an_unknown_host_key_is_refused_and_accept_new_stores_it(job: Job, clean_host: LabHost, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    job.write_inventory(known_hosts=str(known))
    for _ in range(2):
        refused = job.run("plan")
        assert refused.exit == 4
        assert "SHA256:" in refused.problems and "--accept-new" in refused.problems
        assert not known.exists()
    assert job.run("plan", "--accept-new").exit == 0
    assert job.run("plan").exit == 0


def test_destroy_is_repeatable_and_touches_nothing_else(job: Job, clean_host: LabHost, name: str) -> None:
    clean_host.docker("run", "--detach", "--name", "grafana", "--entrypoint", "sleep", job.lab.image("beam"), "600")
    assert job.run("apply").exit == 0
    first = job.run("destroy", "-y")
    assert (first.exit, first.host(name)["outcome"]) == (0, "changed"), first.err
    assert container_id(clean_host) == ""
    second = job.run("destroy", "-y")
    assert (second.exit, second.host(name)["outcome"]) == (0, "unchanged")
    assert container_id(clean_host, "grafana") != ""
    assert clean_host.docker("images", "--quiet", job.lab.image("beam")).strip()


def test_destroy_without_a_recipe_takes_the_only_deployment(job: Job, clean_host: LabHost, name: str) -> None:
    assert job.run("apply").exit == 0
    refused = job.run("destroy", "-")
    assert (refused.exit, "- remove" in refused.err) == (2, True), "without a terminal it needs -y, and shows why"
    assert container_id(clean_host) != ""
    assert job.run("destroy", "-", "-y").host(name)["outcome"] == "changed"
    assert job.run("destroy", "-", "-y").host(name)["outcome"] == "unchanged"


@pytest.mark.parametrize("state", ["running", "exited"])
def test_a_strangers_container_of_our_name_is_never_touched(
    job: Job, clean_host: LabHost, name: str, state: str
) -> None:
    words = ("sleep", "600") if state == "running" else ("true",)
    clean_host.docker("run", "--detach", "--name", "beam", "--entrypoint", words[0], job.lab.image("beam"), *words[1:])
    theirs = container_id(clean_host)
    for command, more in (("apply", ()), ("destroy", ("-y",)), ("apply", ())):
        done = job.run(command, *more)
        assert (done.exit, done.host(name)["outcome"]) == (3, "blocked")
        assert "does not carry beamdeploy's label" in done.problems
        assert container_id(clean_host) == theirs


def test_a_server_that_ends_at_once_is_explained_within_seconds(job: Job, clean_host: LabHost, name: str) -> None:
    for _ in range(2):
        job.write(CRASH)
        started = time.monotonic()
        done = job.run("apply")
        assert time.monotonic() - started < 30
        assert (done.exit, done.host(name)["outcome"]) == (1, "failed")
        assert "exit code" in done.problems and "NCCL error" in done.problems
        assert "is left for a look" in done.problems
    assert "NCCL error" in job.run("logs", "--tail", "20").out


def test_what_the_image_refuses_is_told_before_a_first_server_is_made(job: Job, clean_host: LabHost, name: str) -> None:
    job.write(UNKNOWN)
    for _ in range(2):
        done = job.run("apply")
        assert (done.exit, done.host(name)["outcome"]) == (3, "blocked")
        assert "quantization.kv_cache: the engine in the image" in done.problems
        assert "invalid choice: 'fp8_e5m2'" in done.problems
        assert container_id(clean_host) == ""


def test_a_restart_loop_is_a_failure(job: Job, clean_host: LabHost, name: str) -> None:
    for _ in range(2):
        job.write({**CRASH, "container.restart": "always"})
        done = job.run("apply")
        assert (done.exit, done.host(name)["outcome"]) == (1, "failed")
        assert "restarts again and again" in done.problems or "ended with exit code" in done.problems


def test_a_port_taken_by_a_program_is_found_before_anything_is_started(
    job: Job, clean_host: LabHost, name: str
) -> None:
    listener = clean_host.docker(
        "run", "--detach", "--network", "host", "--entrypoint", "sh", job.lab.image("beam"), "-c",
        "exec python3 -m http.server --bind 127.0.0.1 8000",
    ).strip()  # fmt: skip
    for _ in range(2):
        time.sleep(1)
        done = job.run("apply")
        assert (done.exit, done.host(name)["outcome"]) == (3, "blocked"), done.out
        assert "127.0.0.1:8000 is taken" in done.problems
        assert container_id(clean_host) == ""
    clean_host.docker("rm", "--force", listener)


def test_lock_writes_the_digest_and_apply_obeys_it(job: Job, clean_host: LabHost, name: str) -> None:
    job.write({"image": {"reference": job.lab.image("beam", pinned=False)}})
    refused = job.run("apply")
    assert refused.exit == 2 and "--unpinned" in refused.problems
    # it looks all the same, and does not call good what no plan would take
    looked = job.run("preflight")
    assert (looked.exit, "--unpinned" in looked.problems, "checks" in looked.host(job.hosts[0].name)) == (2, True, True)
    assert job.run("preflight", "--unpinned").exit == 0
    assert job.run("apply", "--locked").exit == 2
    for _ in range(2):
        locked = job.run("lock", "--from", clean_host.name)
        assert locked.exit == 0, locked.err
        assert locked.host(name)["digest"] == job.lab.images["beam"]
    done = job.run("apply", "--locked")
    assert done.exit == 0
    assert job.lab.image("beam") in job.run("render").host(name)["words"]
    assert job.run("apply", "--locked").host(name)["outcome"] == "unchanged"


def test_an_image_that_was_built_there_cannot_be_locked(job: Job, clean_host: LabHost) -> None:
    clean_host.docker("pull", job.lab.image("beam"))
    built = clean_host.docker(
        "commit", clean_host.docker("create", job.lab.image("beam"), "x").strip(), "local/built:1"
    ).strip()
    job.write({"image": {"reference": "local/built:1"}})
    for _ in range(2):
        refused = job.run("lock", "--from", clean_host.name)
        assert refused.exit == 1
        assert "built or loaded there, not pulled" in refused.problems and "image: {id: sha256:…}" in refused.problems
        assert not (job.folder / "beam.lock.yaml").exists()
    job.write({"image": {"id": built}})
    assert job.run("apply").exit == 0


def test_a_bare_tag_with_a_reason_is_used_and_said(job: Job, name: str) -> None:
    job.write({"image": {"reference": job.lab.image("beam", pinned=False), "unpinned": "a lab"}})
    first, second = job.run("apply"), job.run("apply")
    assert (first.exit, second.host(name)["outcome"]) == (0, "unchanged")
    assert "is not pinned: a lab" in first.problems


def test_a_no_op_apply_opens_one_connection_and_one_exec_channel(job: Job, clean_host: LabHost, name: str) -> None:
    assert job.run("apply").exit == 0
    for _ in range(2):
        log = clean_host.folder / "sshd.log"
        before = len(log.read_text(encoding="utf-8", errors="replace"))
        assert job.run("apply").host(name)["outcome"] == "unchanged"
        said = log.read_text(encoding="utf-8", errors="replace")[before:]
        assert (said.count("Accepted publickey"), said.count("Starting session: command")) == (1, 1), said


def test_several_hosts_are_done_at_once(lab: Lab, clean_hosts: tuple[LabHost, ...], tmp_path: Path) -> None:
    job = Job(lab, clean_hosts, tmp_path)
    job.write()
    job.write_inventory()
    first, second = job.run("apply"), job.run("apply")
    assert {host.name: first.host(host.name)["outcome"] for host in clean_hosts} == {
        h.name: "changed" for h in clean_hosts
    }
    assert {host.name: second.host(host.name)["outcome"] for host in clean_hosts} == {
        h.name: "unchanged" for h in clean_hosts
    }
    assert job.run("status").exit == 0
    assert job.run("destroy", "-y").exit == 0


def test_a_comma_inventory_needs_no_file(job: Job, clean_host: LabHost, tmp_path: Path) -> None:
    done = beamdeploy(
        "render", job.recipe, "-i", "root@gpu-z,", "--model-dir", "/srv/x", "--gpus", "4,5,6,7", "-o", "json"
    )
    words = done.host("gpu-z")["words"]
    assert words[words.index("--gpus") + 1] == '"device=4,5,6,7"'
    assert "type=bind,src=/srv/x,dst=/weights,readonly" in words
