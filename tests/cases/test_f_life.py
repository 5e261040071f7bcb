"""Group F: what a host goes through, from the first apply to the last destroy."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from beamdeploy.label import NAME
from tests.integration.command import Job, Ran, container_id
from tests.lab import LabHost
from tests.lab.furnish import gpus


def now(host: LabHost) -> str:
    return datetime.now(UTC).isoformat()


def events(host: LabHost, since: str) -> list[str]:
    """What docker did since then ("container stop"). Execs are no deeds; networks follow late, and with containers."""
    told = host.docker("events", "--since", since, "--until", now(host), "--format", "{{.Type}} {{.Action}}")
    return [line for line in told.splitlines() if "exec_" not in line and line.split()[0] != "network"]


def files(folder: Path) -> dict[str, tuple[int, int]]:
    """Every file below a folder with its time and size."""
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in folder.rglob("*") if path.is_file()}


def test_f01_a_second_apply_does_nothing_and_says_so(job: Job, clean_host: LabHost, name: str) -> None:
    first = job.run("apply")
    assert first.exit == 0, first.err
    made, left, since = container_id(clean_host), files(clean_host.folder / "root"), now(clean_host)
    plan = job.run("plan", "--exit-code")
    assert (plan.exit, plan.host(name)["plan"]) == (0, {"outcome": "unchanged", "changes": [], "steps": []})
    second = job.run("apply")
    assert (second.exit, second.host(name)["outcome"]) == (0, "unchanged")
    assert "no change" in second.host(name)["summary"]
    shown = job.run("apply", output="text")
    assert shown.exit == 0 and "no change" in shown.out
    assert container_id(clean_host) == made
    assert events(clean_host, since) == []
    assert files(clean_host.folder / "root") == left


def test_f02_a_moved_digest_is_pulled_and_the_server_replaced(job: Job, clean_host: LabHost, name: str) -> None:
    assert job.run("apply").exit == 0
    before = container_id(clean_host)
    repository = f"{job.lab.registry}/lightseekorg/tokenspeed"
    old, new = (f"{repository}@{job.lab.images[tag]}" for tag in ("beam", "beam-next"))
    # the tag's text stays
    job.write({"image": {"reference": f"{repository}:beam@{job.lab.images['beam-next']}"}})
    plan = job.run("plan").host(name)["plan"]
    assert plan["changes"] == [{"path": "image", "old": old, "new": new}]
    kinds = [step["kind"] for step in plan["steps"]]
    assert kinds[:3] == ["pull", "probe", "try GPUs"] and plan["outcome"] == "replace"
    assert plan["steps"][0]["words"][-2:] == ["pull", new]
    shown = job.run("plan", output="text").out
    assert f"{old} → {new}" in shown and "no server until the new one is ready" in shown
    since = now(clean_host)
    assert job.run("apply").exit == 0
    done = [
        event for event in events(clean_host, since) if event in ("image pull", "container stop", "container start")
    ]
    # the first two are the probe and CUDA's trial: the new image is asked before the old server is stopped
    assert done == ["image pull", *["container start"] * 2, "container stop", "container start"]
    assert container_id(clean_host) not in ("", before)
    assert clean_host.docker("inspect", "--format", "{{.Config.Image}}", "beam").strip() == new
    assert job.run("apply").host(name)["outcome"] == "unchanged"


def refused(ran: Ran, name: str) -> str:
    """All that is said by a run that was blocked."""
    assert (ran.exit, ran.host(name)["outcome"]) == (3, "blocked")
    return ran.problems


@pytest.mark.parametrize("row", ["stranger-running", "stranger-exited", "started-by-hand-from-the-guide"])
def test_f09_a_container_without_our_label_is_refused_and_named(
    job: Job, clean_host: LabHost, name: str, row: str
) -> None:
    image, begun = job.lab.image("beam"), now(clean_host)
    if row == "started-by-hand-from-the-guide":
        words = job.run("render").host(name)["words"]
        place = words.index("--label")
        clean_host.docker(*words[1:place], *words[place + 6 :])
    else:
        entrypoint = ("sleep", image, "600") if row == "stranger-running" else ("true", image)
        clean_host.docker("run", "--detach", "--name", "beam", "--entrypoint", *entrypoint)
    while row == "stranger-exited" and "container die" not in events(clean_host, begun):
        time.sleep(0.1)
    theirs, since = container_id(clean_host), now(clean_host)
    for command, more in (("apply", ()), ("destroy", ("-y",)), ("apply", ("--skip-blocked",))):
        said = refused(job.run(command, *more), name)
        assert "a container named beam" in said and image in said
        assert "does not carry beamdeploy's label" in said
        assert "docker stop beam; docker rm beam" in said
    assert container_id(clean_host) == theirs
    assert events(clean_host, since) == []


def test_f09_a_container_of_another_deployment_is_refused_and_both_are_named(
    job: Job, clean_host: LabHost, name: str
) -> None:
    """The name is a deployment's identity, the label holds it: what was renamed by hand stays the other's."""
    job.write({"name": "someone-elses"})
    assert job.run("apply").exit == 0
    clean_host.docker("rename", "someone-elses", "beam")
    theirs, since = container_id(clean_host), now(clean_host)
    job.write()
    for command, more in (("apply", ()), ("destroy", ("-y",))) * 2:
        said = refused(job.run(command, *more), name)
        assert "the container beam (" in said and "beam is asked for, its label says someone-elses" in said
        assert "docker rename beam someone-elses" in said
    assert (container_id(clean_host), events(clean_host, since)) == (theirs, [])
    clean_host.docker("rename", "beam", "someone-elses")
    job.write({"name": "someone-elses"})
    assert job.run("apply").host(name)["outcome"] == "unchanged"


def test_f09_the_same_name_for_another_model_is_shown_as_the_change_that_it_is(
    job: Job, clean_host: LabHost, name: str
) -> None:
    """Same name, same deployment: the plan says what was served before, and apply asks on a terminal."""
    assert job.run("apply").exit == 0
    job.write({"model.served_name": "Another-7B"})
    change = {"path": "model.served_name", "old": "Beam-1.0-501B-A23B", "new": "Another-7B"}
    assert job.run("plan").host(name)["plan"]["changes"] == [change]
    assert "Beam-1.0-501B-A23B → Another-7B" in job.run("plan", output="text").out


def ours(host: LabHost, deployment: str = "beam") -> list[str]:
    """The containers that carry our label for a deployment."""
    return host.docker("ps", "--all", "--quiet", "--filter", f"label={NAME}={deployment}").split()


def by_hand(job: Job, host: LabHost, name: str, *words: str, verb: str = "run") -> str:
    """A container with our labels that docker was told to make by hand: the rendered words, and some more."""
    rendered = job.run("render").host(name)["words"]
    rest = [word for word in rendered[2:] if verb == "run" or word != "--detach"]
    return host.docker(verb, *words, *rest).strip()


def destroyed(job: Job, host: LabHost, name: str, *, outcome: str = "changed") -> Ran:
    """Destroyed, looked for, and destroyed again; what is none of ours is left."""
    weights = files(host.models)
    images = sorted(host.docker("images", "--quiet", "--no-trunc").split())
    done = job.run("destroy", "-y")
    assert (done.exit, done.host(name)["outcome"]) == (0, outcome), done.out
    assert ours(host) == []
    again = job.run("destroy", "-y")
    assert (again.exit, again.host(name)["outcome"]) == (0, "unchanged")
    assert "nothing to do" in again.host(name)["summary"]
    assert files(host.models) == weights
    assert sorted(host.docker("images", "--quiet", "--no-trunc").split()) == images
    return done


def kinds(ran: Ran, name: str) -> list[str]:
    return [step["kind"] for step in ran.host(name)["plan"]["steps"]]


def test_f14_normal_the_server_goes_and_all_else_stays(job: Job, clean_host: LabHost, name: str) -> None:
    clean_host.docker("run", "--detach", "--name", "grafana", "--entrypoint", "sleep", job.lab.image("beam"), "600")
    clean_host.docker("create", "--name", "ended", "--entrypoint", "true", job.lab.image("beam"))
    clean_host.docker("volume", "create", "kept")
    others = [container_id(clean_host, other) for other in ("grafana", "ended")]
    job.write({"container.stop_timeout": 33})
    assert job.run("apply").exit == 0
    since = now(clean_host)
    done = destroyed(job, clean_host, name)
    assert kinds(done, name) == ["stop", "remove"]
    assert done.host(name)["plan"]["steps"][0]["words"][1:4] == ["stop", "-t", "33"]
    told = [event for event in events(clean_host, since) if event.split()[1] in ("kill", "stop", "die", "destroy")]
    assert told == ["container kill", "container die", "container stop", "container destroy"]
    assert [container_id(clean_host, other) for other in ("grafana", "ended")] == others
    assert "kept" in clean_host.docker("volume", "ls", "--quiet").split()
    clean_host.docker("volume", "rm", "kept")


def test_f14_nothing_there_is_nothing_to_do(job: Job, clean_host: LabHost, name: str) -> None:
    done = job.run("destroy", "-y")
    assert (done.exit, done.host(name)["outcome"]) == (0, "unchanged")
    assert "nothing to do" in done.host(name)["summary"]
    assert "nothing to do" in job.run("destroy", "-y", output="text").out


def test_f14_exited(job: Job, clean_host: LabHost, name: str) -> None:
    assert job.run("apply").exit == 0
    clean_host.docker("kill", "beam")
    assert kinds(destroyed(job, clean_host, name), name) == ["remove"]


def test_f14_husk(job: Job, clean_host: LabHost, name: str) -> None:
    by_hand(job, clean_host, name, verb="create")
    assert clean_host.docker("inspect", "--format", "{{.State.Status}}", "beam").strip() == "created"
    assert kinds(destroyed(job, clean_host, name), name) == ["remove"]


def test_f14_not_ours(job: Job, clean_host: LabHost, name: str) -> None:
    clean_host.docker("run", "--detach", "--name", "beam", "--entrypoint", "sleep", job.lab.image("beam"), "600")
    theirs = container_id(clean_host)
    for _ in range(2):
        assert "does not carry beamdeploy's label" in refused(job.run("destroy", "-y"), name)
        assert container_id(clean_host) == theirs


def test_f14_unreachable(job: Job, clean_host: LabHost, name: str) -> None:
    job.write_inventory(port=9)
    for _ in range(2):
        done = job.run("destroy", "-y")
        assert (done.exit, done.host(name)["outcome"]) == (4, "unreachable")
        assert "nothing listens on port 9" in done.problems


def test_f14_stop_hangs(job: Job, clean_host: LabHost, name: str) -> None:
    job.write({"container.env": {"STANDIN_FAULT": "ignore-term"}, "container.stop_timeout": 2})
    assert job.run("apply").exit == 0
    table = clean_host.folder / "gpus.csv"
    idle = table.read_text(encoding="utf-8")
    table.write_text(idle.replace(", 4, 275036,", ", 250000, 25040,"), encoding="utf-8")
    # the driver gives memory back some seconds after the process is gone
    free = threading.Timer(12, lambda: table.write_text(idle, encoding="utf-8"))
    free.start()
    began = time.monotonic()
    done = job.run("destroy", "-y")
    free.join()
    assert (done.exit, done.host(name)["outcome"]) == (0, "changed"), done.out
    [warning] = done.report["problems"]
    assert warning["level"] == "warning"
    assert warning["what"] == "the server did not end within 2 s and was killed"
    assert "stop_timeout" in warning["remedy"]
    assert "wait for GPUs: GPU 0: 250000 MiB" in done.err and time.monotonic() - began > 5
    assert ours(clean_host) == []


def test_f14_two_recipes(job: Job, clean_host: LabHost, name: str) -> None:
    (clean_host.folder / "gpus.csv").write_text(gpus(8), encoding="utf-8")
    job.write_inventory(gpus=[4, 5, 6, 7])
    job.write({"name": "beam2", "container.publish": "127.0.0.1:8001"})
    assert job.run("apply").exit == 0
    job.write_inventory(gpus=[0, 1, 2, 3])
    job.write()
    assert job.run("apply").exit == 0
    other = container_id(clean_host, "beam2")
    destroyed(job, clean_host, name)
    assert ours(clean_host, "beam2") != [] and container_id(clean_host, "beam2") == other
    assert clean_host.docker("inspect", "--format", "{{.State.Running}}", "beam2").strip() == "true"


def test_f14_auto_removed(job: Job, clean_host: LabHost, name: str) -> None:
    for _ in range(3):
        by_hand(job, clean_host, name, "--rm")
        destroyed(job, clean_host, name)


def test_f14_auto_removed_and_already_ended(job: Job, clean_host: LabHost, name: str) -> None:
    by_hand(job, clean_host, name, "--rm")
    clean_host.docker("kill", "beam")
    deadline = time.monotonic() + 20
    while ours(clean_host):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    destroyed(job, clean_host, name, outcome="unchanged")
