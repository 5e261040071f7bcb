"""prune removes what earlier deployments left, and nothing that is needed or another's."""

from __future__ import annotations

from tests.integration.command import Job, Ran, container_id
from tests.lab import LabHost

TAGS = ("beam", "beam-next")


def deploy(job: Job, tag: str, seqs: int) -> None:
    job.write({"image": {"reference": job.lab.image(tag)}, "engine.max_num_seqs": seqs})
    done = job.run("apply")
    assert done.exit == 0, done.out


def removed(done: Ran, host: LabHost) -> list[str]:
    steps = done.host(host.name)["plan"]["steps"]
    return [step["words"][-1] for step in steps if step["kind"] == "remove image"]


def images(host: LabHost) -> set[str]:
    listed = host.docker("images", "--digests", "--format", "{{.Repository}}@{{.Digest}}")
    return {line for line in listed.split() if not line.endswith("<none>")}


def test_an_image_goes_when_three_good_deployments_do_without_it(job: Job, clean_host: LabHost) -> None:
    old, new = (job.lab.image(tag) for tag in TAGS)
    other = job.lab.image(next(tag for tag in job.lab.images if tag not in TAGS))
    clean_host.docker("pull", other)
    deploy(job, "beam", 8)
    for seqs in (7, 6):
        deploy(job, "beam-next", seqs)
        # one of the last three good ones still has it
        done = job.run("prune", "-y")
        assert (done.exit, done.host(clean_host.name)["outcome"], removed(done, clean_host)) == (0, "unchanged", [])
    deploy(job, "beam-next", 5)
    before = container_id(clean_host)
    refused = job.run("prune")
    assert refused.exit == 2 and "-y" in refused.problems and old in images(clean_host)
    done = job.run("prune", "-y")
    assert (done.exit, removed(done, clean_host)) == (0, [old]), done.out
    assert images(clean_host) >= {new, other} and old not in images(clean_host)
    assert container_id(clean_host) == before
    again = job.run("prune", "-y")
    assert (again.exit, again.host(clean_host.name)["outcome"]) == (0, "unchanged")
    # the way back that is left works
    assert job.run("rollback", "-y").exit == 0


def test_an_image_that_a_stranger_uses_stays(job: Job, clean_host: LabHost) -> None:
    old = job.lab.image("beam")
    deploy(job, "beam", 8)
    clean_host.docker("create", "--name", "grafana", "--entrypoint", "true", old)
    for seqs in (7, 6, 5):
        deploy(job, "beam-next", seqs)
    for _ in range(2):
        done = job.run("prune", "-y")
        assert (done.exit, removed(done, clean_host)) == (0, [])
        assert old in images(clean_host) and container_id(clean_host, "grafana") != ""


def test_a_container_that_was_kept_goes_and_the_one_that_serves_stays(job: Job, clean_host: LabHost) -> None:
    deploy(job, "beam", 8)
    job.write({"container.env": {"STANDIN_FAULT": "crash-at-start"}})
    assert job.run("apply", "--keep-failed").exit == 1
    before = container_id(clean_host)
    assert container_id(clean_host, "beam.failed") != ""
    done = job.run("prune", "-y")
    assert (done.exit, done.host(clean_host.name)["summary"]) == (0, "removed 0 images, 1 containers"), done.out
    assert (container_id(clean_host), container_id(clean_host, "beam.failed")) == (before, "")
    assert job.run("prune", "-y").host(clean_host.name)["outcome"] == "unchanged"
