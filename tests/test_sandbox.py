"""The sandbox from outside: a fresh one, two at once, one that was killed, one that is gone, and what each leaves."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from beamdeploy.errors import InputError
from beamdeploy.inventory import Host, load_inventory
from beamdeploy.recipe import load_recipe
from beamdeploy.remote import open_session
from beamdeploy.sandbox import lifetime, locks, place
from beamdeploy.sandbox.docker import store
from beamdeploy.sandbox.lifetime import Running, folder_of
from beamdeploy.sandbox.profiles import faults, profiles
from tests import forked

LAST_LINES = 20
RECIPE = str(Path(__file__).parents[1] / "recipes" / "beam-nvfp4-tokenspeed-4xb300.yaml")


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Path]:
    """A cache folder of its own; every sandbox in it is ended."""
    yield tmp_path
    for folder in lifetime.all_of({"XDG_CACHE_HOME": str(tmp_path)}):
        lifetime.down(folder)


@pytest.fixture
def running(cache: Path) -> Running:
    """A sandbox for the Beam recipe."""
    return lifetime.up(None, folder(cache), recipes=[load_recipe(RECIPE)])


def folder(cache: Path, name: str | None = None) -> Path:
    return lifetime.folder_of(name, {"XDG_CACHE_HOME": str(cache)})


def host_of(running: Running) -> Host:
    return load_inventory(str(running.inventory), environ={}).hosts[0]


def environment(cache: Path, name: str = "default") -> Mapping[str, str]:
    return {**os.environ, "XDG_CACHE_HOME": str(cache), "BEAMDEPLOY_SANDBOX": name}


def start(cache: Path, *words: str, name: str = "default") -> subprocess.Popen[str]:
    return subprocess.Popen(
        (sys.executable, "-m", "beamdeploy", *words, "-i", "sandbox"),
        env=environment(cache, name),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def beamdeploy(cache: Path, *words: str, name: str = "default") -> tuple[int, str]:
    """Exit code, and all that was said."""
    done = forked.beamdeploy(*words, "-i", "sandbox", env=environment(cache, name))
    return done.returncode, done.stdout + done.stderr


def processes(of: Path) -> list[str]:
    """The command lines that name the folder."""
    lines = subprocess.run(("ps", "-eo", "stat=,args="), capture_output=True, text=True, check=True).stdout.splitlines()
    return [line for line in lines if str(of) in line and not line.startswith("Z")]


def test_the_main_job_twice_and_nothing_is_left(cache: Path) -> None:
    assert beamdeploy(cache, "apply", RECIPE)[0] == 0
    assert beamdeploy(cache, "plan", RECIPE, "--exit-code")[0] == 0
    code, said = beamdeploy(cache, "status", RECIPE)
    assert (code, "ready, as the recipe" in said) == (0, True)
    assert beamdeploy(cache, "destroy", RECIPE, "-y")[0] == 0
    assert lifetime.down(folder(cache))
    assert (processes(cache), list(cache.rglob("sandbox/*"))) == ([], [])


def test_two_sandboxes_serve_the_same_port_side_by_side(cache: Path) -> None:
    both = [start(cache, "apply", RECIPE, name=name) for name in ("one", "two")]
    ended = [process.communicate(timeout=60) for process in both]
    assert [process.returncode for process in both] == [0, 0], ended
    for name in ("one", "two"):
        assert beamdeploy(cache, "status", RECIPE, name=name)[0] == 0


def test_a_killed_server_is_noticed_and_replaced_and_what_runs_goes_on(cache: Path) -> None:
    assert beamdeploy(cache, "apply", RECIPE)[0] == 0
    before = lifetime.status(folder(cache))
    assert before is not None
    os.kill(before.pid, signal.SIGKILL)
    assert locks.free_within(str(before.folder / place.SERVER_LOCK), 5)
    assert lifetime.status(folder(cache)) is None
    code, said = beamdeploy(cache, "status", RECIPE)
    assert (code, "ready" in said) == (0, True)
    after = lifetime.status(folder(cache))
    assert after is not None and after.pid != before.pid


def test_a_killed_engine_is_seen_as_ended(cache: Path) -> None:
    assert beamdeploy(cache, "apply", RECIPE)[0] == 0
    own = str(folder(cache))
    record = store.all_of(own)[0]
    alive = os.path.join(store.home(own, record["Id"]), store.ALIVE)
    os.killpg(int(record["State"]["Pid"]), signal.SIGKILL)
    assert locks.free_within(alive, 5)
    assert store.all_of(own)[0]["State"]["ExitCode"] == 137
    assert beamdeploy(cache, "status", RECIPE)[0] == 6


def test_what_stands_aside_after_an_apply_that_was_cut_short_is_told(cache: Path) -> None:
    assert beamdeploy(cache, "apply", RECIPE)[0] == 0
    docker = str(folder(cache) / "bin" / "docker")
    for words in (("stop", "-t", "5", "beam"), ("rename", "beam", "beam.previous")):
        subprocess.run((docker, *words), check=True, capture_output=True)
    for target in ((), ("beam",)):
        code, said = beamdeploy(cache, "status", *target)
        assert code == 6 and "no beam runs: the server before stands aside as beam.previous (exited)" in said
        assert "docker rename beam.previous beam && docker start beam" in said
    code, said = beamdeploy(cache, "client", "beam")
    assert (code, "there is no deployment named beam" in said) == (1, True)
    assert beamdeploy(cache, "apply", RECIPE)[0] == 0
    code, said = beamdeploy(cache, "client", "beam")
    assert (code, "export OPENAI_BASE_URL=http://127.0.0.1:8000/v1" in said) == (0, True)


def test_ctrl_c_in_the_middle_of_an_apply_loses_nothing(cache: Path) -> None:
    lifetime.up("4xb300", folder(cache), ["slow-load"])
    process = start(cache, "apply", RECIPE)
    assert process.stderr is not None
    for line in process.stderr:
        if ": loading: " in line:
            break
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert process.returncode == 130
    found = lifetime.status(folder(cache))
    assert found is not None
    assert [record["State"]["Status"] for record in store.all_of(str(found.folder))] == ["running"]
    code, said = beamdeploy(cache, "status", RECIPE)
    assert (code, "loading" in said) == (6, True)


def test_it_ends_by_itself_when_its_folder_is_removed(running: Running) -> None:
    subprocess.run(("rm", "-rf", str(running.folder)), check=True)
    deadline = time.monotonic() + 10
    while processes(running.folder) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert processes(running.folder) == []


def test_many_runs_in_a_row_leave_no_process_file_or_descriptor(cache: Path) -> None:
    descriptors = len(os.listdir("/dev/fd"))
    for _ in range(20):
        started = lifetime.up("1xh200", folder(cache))
        docker = str(started.folder / place.BIN / "docker")
        words = ("run", "--detach", "--name", "work", "--entrypoint", "sleep", "some/image:1", "60")
        subprocess.run((docker, *words), check=True, capture_output=True)
        assert lifetime.down(started.folder)
    assert (processes(cache), list(cache.rglob("sandbox/*"))) == ([], [])
    assert len(os.listdir("/dev/fd")) == descriptors


def test_gpu_memory_is_in_use_while_an_engine_lives_and_free_after(cache: Path) -> None:
    assert beamdeploy(cache, "apply", RECIPE)[0] == 0
    smi = str(folder(cache) / place.BIN / "nvidia-smi")
    query = ("--query-gpu=index,memory.used", "--format=csv,noheader,nounits")

    def used() -> list[str]:
        return subprocess.run((smi, *query), capture_output=True, text=True, check=True).stdout.splitlines()

    assert used() == [f"{index}, 247536" for index in range(4)]
    assert beamdeploy(cache, "destroy", RECIPE, "-y")[0] == 0
    assert used() == [f"{index}, 4" for index in range(4)]


def test_a_channel_tells_exit_codes_signals_and_both_streams(running: Running) -> None:
    with open_session(host_of(running)) as session:
        result = session.run(("sh", "-c", "echo out; echo err >&2; exit 7"), timeout=10)
        assert (result.exit, result.out, result.err) == (7, "out\n", "err\n")
        assert session.run(("sh", "-c", "kill -KILL $(ps -o ppid= -p $PPID); sleep 1"), timeout=10).exit is None
        assert session.run(("sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x"), timeout=20).out == "x" * 3_000_000
        assert session.run(("sleep", "9"), timeout=1).exit == 124
        assert session.run(("sh", "-c", "echo $HOME"), timeout=10).out == f"{running.folder / place.HOME}\n"


def test_a_line_that_raises_ends_what_is_followed(running: Running) -> None:
    with open_session(host_of(running)) as session:
        with pytest.raises(KeyboardInterrupt):
            session.follow(("sh", "-c", "while :; do echo x; sleep 0.05; done"), _interrupt, timeout=20)
        deadline = time.monotonic() + 5
        jobs = running.folder / place.JOBS
        while any(locks.held(str(lock)) for lock in jobs.glob("*.lock")) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert list(jobs.glob("*.lock")) == []


def _interrupt(line: str) -> None:
    raise KeyboardInterrupt


def test_no_port_of_this_machine_can_be_reached_through_it(running: Running) -> None:
    with open_session(host_of(running)) as session, pytest.raises(ConnectionRefusedError):
        session.channel(running.port)


@pytest.mark.parametrize("name", list(faults()))
def test_a_fault_ends_an_apply_as_its_data_say_and_status_tells_what_is_left(name: str, cache: Path) -> None:
    fault = faults()[name]
    lifetime.up("4xb300", folder(cache), [name])
    given = [word for path, value in fault.set.items() for word in ("-e", f"{path}={value}")]
    code, said = beamdeploy(cache, "apply", RECIPE, "-y", *given)
    assert (code, code != 0) == (fault.exit, True), said
    assert re.search(fault.says, "\n".join(said.splitlines()[-LAST_LINES:]), re.DOTALL), said
    assert re.search(fault.status, beamdeploy(cache, "status", RECIPE)[1])


def test_every_profile_has_a_family_that_its_product_names() -> None:
    wrong = [each.name for each in profiles().values() if each.gpu not in each.product]
    assert wrong == []


def test_status_and_faults_are_told_as_json_and_lines(cache: Path) -> None:
    def told(*words: str) -> str:
        done = forked.beamdeploy("sandbox", *words, env=environment(cache))
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert json.loads(told("status", "-o", "json"))["hosts"] == {}
    told("up", "--profile", "8xh200", "--fault", "cuda-oom")
    held = json.loads(told("status", "-o", "json"))["hosts"]["default"]
    assert "8xh200" in held["summary"] and "cuda-oom" in held["summary"]
    assert [line.split()[0] for line in told("faults").splitlines()] == list(faults())
    told("down")
    assert processes(cache) == []


@pytest.mark.parametrize("name", ["../../victim", "/abs/folder", ".", "..", "a/b", "-x"])
def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="is not a sandbox's name"):
        folder_of(name, {"XDG_CACHE_HOME": str(tmp_path)})
