"""A server that asks for a key is asked with it by everything of ours, and the key is seen nowhere."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.forked import beamdeploy
from tests.integration.command import Job, Ran, environment
from tests.lab import Lab, LabHost

KEY = "key-of-the-lab-31c7"
WORDS = (sys.executable, "-m", "beamdeploy")


@pytest.fixture
def job(lab: Lab, clean_host: LabHost, tmp_path: Path) -> Job:
    made = Job(lab, (clean_host,), tmp_path)
    made.write({"container.secrets": {"SMG_API_KEY": {"host_file": "/root/api-key"}}})
    made.write_inventory()
    (clean_host.folder / "root" / "api-key").write_text(KEY + "\n")
    return made


def run(job: Job, command: str, *words: str) -> Ran:
    target = ("beam",) if command == "status" else (job.recipe,)
    done = beamdeploy(command, *target, "-i", job.inventory, *words, env=environment())
    assert KEY not in done.stdout + done.stderr
    return Ran(done.returncode, done.stdout, done.stderr)


def test_apply_smoke_status_chat_and_bench_send_the_key(job: Job, clean_host: LabHost) -> None:
    for outcome in ("changed", "unchanged"):
        done = run(job, "apply", "-o", "json")
        assert (done.exit, done.host(clean_host.name)["outcome"]) == (0, outcome), done.out
    refused = clean_host.docker(
        "exec", "beam", "python3", "-c",
        "import urllib.request as r, urllib.error as e\n"
        "try: r.urlopen('http://127.0.0.1:8000/v1/chat/completions', b'{}')\n"
        "except e.HTTPError as error: print(error.code)",
    )  # fmt: skip
    assert refused.strip() == "401"
    smoke = run(job, "smoke", "-o", "json")
    assert smoke.exit == 0, smoke.out
    deep = run(job, "status", "--deep", "-o", "json")
    assert (deep.exit, deep.host(clean_host.name)["deployments"][0]["ready"]) == (0, "ready"), deep.out
    assert run(job, "chat", "-m", "What is 2 + 3?").out == "5\n"
    bench = run(job, "bench", "--concurrency", "1", "--requests", "2", "--input", "20", "--output", "8", "-o", "json")
    assert bench.exit == 0, bench.out
    state = "/root/.local/state/beamdeploy/beam"
    assert KEY not in clean_host.run("cat", f"{state}/history.jsonl") + clean_host.run("cat", f"{state}/runs.jsonl")


@pytest.mark.parametrize("form", ["env", "curl", "python", "openai"])
def test_client_settings_name_the_variable_that_holds_the_key(job: Job, form: str) -> None:
    job.write({"container.secrets": {"SMG_API_KEY": {"env": "MY_KEY"}}})
    words = (*WORDS, "client", job.recipe, "--as", form)
    printed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    expected = {"env": '"$MY_KEY"', "curl": '"Authorization: Bearer $MY_KEY"'}
    assert expected.get(form, "os.environ['MY_KEY']") in printed
    if form in ("python", "openai"):
        compile(printed, form, "exec")


def guarded(tmp_path: Path) -> Path:
    """A vLLM recipe with an API key."""
    recipes = Path(__file__).parents[2] / "recipes"
    source = next(path for path in sorted(recipes.glob("*.yaml")) if "name: vllm" in path.read_text(encoding="utf-8"))
    recipe = yaml.safe_load(source.read_text(encoding="utf-8"))
    recipe["container"]["secrets"] = {"VLLM_API_KEY": {"env": "MY_KEY"}}
    file = tmp_path / "vllm.yaml"
    file.write_text(yaml.safe_dump(recipe), encoding="utf-8")
    return file


def test_a_server_that_tells_its_models_only_with_its_key_is_found_ready(tmp_path: Path) -> None:
    """vLLM guards /v1/models as well: the second apply must find that nothing is to be done."""
    file = guarded(tmp_path)
    done = subprocess.run(
        (*WORDS, "test", str(file), "-o", "json"), capture_output=True, text=True, env=environment(), check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["exit"] == 0


def test_a_server_that_wants_a_key_of_which_nobody_tells_us_is_not_waited_for(tmp_path: Path) -> None:
    """`test` gives no key, and a variable of `container.env` is no secret: nobody can answer for us."""
    file = guarded(tmp_path)
    recipe = yaml.safe_load(file.read_text(encoding="utf-8"))
    del recipe["container"]["secrets"]
    recipe["container"]["env"]["VLLM_API_KEY"] = "plain"
    file.write_text("# beamdeploy: ignore-file BD415\n" + yaml.safe_dump(recipe), encoding="utf-8")
    done = subprocess.run(
        (*WORDS, "test", str(file), "-o", "json"),
        capture_output=True, text=True, env=environment(), check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 1
    assert "refuses to answer /v1/models (HTTP 401): it wants another API key" in done.stdout
