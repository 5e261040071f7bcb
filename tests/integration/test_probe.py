"""The new image is asked for parsers and flags while the old server serves: on a real Docker engine."""

from __future__ import annotations

from tests.integration.command import Job, container_id
from tests.lab import LabHost

BAD = {"parsers.tool_call": "nosuch", "engine.unverified": ["parsers.tool_call"]}


def test_c07_a_parser_that_the_image_lacks_blocks_before_the_old_server_is_stopped(
    job: Job, clean_host: LabHost
) -> None:
    assert job.run("apply").exit == 0
    serving = container_id(clean_host)
    job.write(BAD)
    for _ in range(2):
        done = job.run("apply")
        assert (done.exit, done.host(clean_host.name)["outcome"]) == (3, "blocked")
        assert "parsers.tool_call: the image" in done.problems and "knows no tool-call parser 'nosuch'" in done.problems
        assert "still runs" in done.problems
        assert container_id(clean_host) == serving
        assert clean_host.docker("ps", "--all", "--quiet", "--no-trunc").split() == [serving]
    # both times the same was asked: the second answer is the first, kept on the host beside that of the first apply
    kept = clean_host.run("sh", "-c", "ls /root/.local/state/beamdeploy/probes").split()
    assert len(kept) == 2
    job.write({"engine.max_num_seqs": 4})
    assert job.run("apply").host(clean_host.name)["outcome"] == "changed"
