"""The run on a real GPU: every step twice, through beamdeploy over SSH, with what it printed and how long it took.

    python steps.py --folder FOLDER --models DIR --keys DIR --image REFERENCE --out DIR
        [--docker-args JSON] [--gpu-access devices] [--only NAME,…]

`host.sh`, `model.py` and `hog.py` beside this file have been used before: the host is this machine, reached by SSH on
127.0.0.1:2222 like any other. DIR/steps.jsonl gets a line a run: words, exit, seconds, both outputs with the second in
which each line came, when the server answered and when it did not, and the memory in use on the GPU before and after.
DIR/container-N.log is the whole log of the Nth container.
"""

from __future__ import annotations

import argparse
import http.client
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from beamdeploy.look import script

HERE = Path(__file__).parent
MODEL = "beamdeploy/random-qwen3"
SNAPSHOT = f"hub/models--beamdeploy--random-qwen3/snapshots/{'0' * 39}1"
PORT = 8100
COMMAND = (MODEL, "--device", "cuda:0", "--host", "0.0.0.0", "--port", "8000", "--log-level", "info")
REQUESTS, INPUT, OUTPUT = 8, 256, 128


def recipe(image: str, gpu: str, command: Sequence[str]) -> dict[str, Any]:
    """The recipe, as data: JSON is YAML."""
    return {
        "apiVersion": "beamdeploy/v1",
        "name": "real",
        "verified": "real-gpu",
        "hardware": {"gpu": gpu, "count": 1, "min_driver": "580"},
        "image": {"reference": image},
        "model": {"served_name": MODEL, "weights": {"path": SNAPSHOT}},
        "engine": {"name": "openai", "command": list(command), "port": 8000, "ready": "/health"},
        "container": {
            "publish": f"127.0.0.1:{PORT}",
            "stop_timeout": 20,
            "env": {"HF_HUB_CACHE": "/weights/hub", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"},
        },
        "request": {"temperature": 0.7, "max_tokens": 64},
        "smoke": {"checks": ["completion"]},
        "ready": {"timeout": "6m", "stall": "5m"},
    }


def command_of(asked: argparse.Namespace) -> tuple[str, ...]:
    """The server's words."""
    return tuple(asked.device if word == "cuda:0" else word for word in COMMAND)


def inventory(asked: argparse.Namespace) -> dict[str, Any]:
    """The machine as a host of an inventory."""
    host = {
        "address": "127.0.0.1",
        "port": 2222,
        "user": "root",
        "identity_file": str(asked.keys / "user"),
        "known_hosts": str(asked.keys / "known_hosts"),
        "model_dir": str(asked.models),
        "gpus": [0],
        "gpu_access": asked.gpu_access,
        "docker_args": json.loads(asked.docker_args),
    }
    return {"all": {"hosts": {"gpu-a": host}}}


class Watch:
    """Asks the server again and again whether it answers, and keeps the log of every container."""

    def __init__(self, out: Path) -> None:
        self.changes: list[tuple[float, bool]] = []
        self.silent = threading.Event()
        self._out, self._seen = out, dict[str, subprocess.Popen[bytes]]()
        events = ("docker", "events", "--format", "{{.TimeNano}} {{.Action}} {{.Actor.Attributes.name}}")
        self._events = subprocess.Popen(events, stdout=(out / "events.txt").open("wb"), stderr=subprocess.STDOUT)
        for work in (self._health, self._logs):
            threading.Thread(target=work, daemon=True).start()

    def _health(self) -> None:
        up = False
        while True:
            now = answers()
            if now != up:
                self.changes.append((time.monotonic(), now))
                up = now
            # its own log should not be of these questions alone, and a benchmark not be disturbed
            time.sleep(0.25 if up else 0.025)
            while self.silent.is_set():
                time.sleep(0.1)

    def _logs(self) -> None:
        while True:
            words = ("docker", "ps", "--all", "--quiet", "--no-trunc", "--filter", "name=real")
            for container in subprocess.run(words, capture_output=True, text=True, check=False).stdout.split():
                if container not in self._seen:
                    file = (self._out / f"container-{len(self._seen) + 1}.log").open("wb")
                    follow = ("docker", "logs", "--follow", container)
                    self._seen[container] = subprocess.Popen(follow, stdout=file, stderr=subprocess.STDOUT)
            time.sleep(0.2)

    def end(self) -> None:
        """Nothing is followed any longer."""
        self._events.terminate()


def answers() -> bool:
    """Whether the server says that it is ready."""
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=2)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:
        return False
    except http.client.HTTPException:
        return False
    finally:
        connection.close()


def gpu_memory() -> str:
    """MiB in use, and by whom, as nvidia-smi says it."""
    asked = (
        ("--query-gpu=memory.used,memory.total", "--format=csv,noheader,nounits"),
        ("--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"),
    )
    told = [subprocess.run(("nvidia-smi", *words), capture_output=True, text=True, check=False) for words in asked]
    return "; ".join(" / ".join(each.stdout.split("\n")).strip(" /") for each in told)


class Record:
    """Runs a step and writes down what came of it."""

    def __init__(self, out: Path, folder: Path, watch: Watch) -> None:
        self._file, self._folder, self.watch = (out / "steps.jsonl").open("a", encoding="utf-8"), folder, watch

    def step(self, name: str, *words: str) -> int:
        """One run; its exit code."""
        before, at, began, known = gpu_memory(), time.time(), time.monotonic(), len(self.watch.changes)
        lines: dict[str, list[tuple[float, str]]] = {"stdout": [], "stderr": []}
        process = subprocess.Popen(
            words, cwd=self._folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert process.stdout is not None and process.stderr is not None
        readers = [
            threading.Thread(target=_read, args=(stream, lines[key], began))
            for key, stream in (("stdout", process.stdout), ("stderr", process.stderr))
        ]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        exit_code = process.wait()
        seconds = time.monotonic() - began
        changes = [(round(then - began, 3), up) for then, up in self.watch.changes[known:]]
        line = {"step": name, "at": at, "words": words, "exit": exit_code, "seconds": round(seconds, 3), **lines}
        self.write({**line, "answers": changes, "gpu_before": before, "gpu_after": gpu_memory()})
        return exit_code

    def write(self, line: dict[str, Any]) -> None:
        """One more line."""
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()
        told = f"{line['step']}: exit {line['exit']}, {line['seconds']} s"
        sys.stdout.write(f"{time.strftime('%H:%M:%S')} {told}\n")
        sys.stdout.flush()


def _read(stream: TextIO, lines: list[tuple[float, str]], began: float) -> None:
    for line in stream:
        lines.append((round(time.monotonic() - began, 3), line.rstrip("\n")))


@contextmanager
def hog(asked: argparse.Namespace, *words: str) -> Iterator[None]:
    """A stranger on the GPU, there when it has said `ready`."""
    command = (asked.hog_python, str(HERE / "hog.py"), *words)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    wanted = "ready" if "--at-start-of" in words else "holds"
    for line in process.stdout:
        if line.startswith(wanted):
            break
    try:
        yield
    finally:
        process.terminate()
        process.wait()


class Story:
    """All steps in their order."""

    def __init__(self, asked: argparse.Namespace, record: Record) -> None:
        self.asked, self.record, self.command = asked, record, command_of(asked)
        self.beamdeploy = (sys.executable, "-m", "beamdeploy")

    def ours(self, name: str, *words: str) -> int:
        """A command of beamdeploy on the recipe."""
        verb, *rest = words
        return self.record.step(name, *self.beamdeploy, verb, "recipe.yaml", "-i", "inventory.yaml", *rest)

    def twice(self, name: str, *words: str) -> None:
        """The same twice."""
        for number in (1, 2):
            self.ours(f"{name} {number}", *words)

    def serving(self, name: str) -> None:
        """One request that beamdeploy has no part in."""
        direct = (sys.executable, str(HERE / "direct.py"), str(PORT), MODEL, "8", "16", "1")
        self.record.step(f"{name}: asked directly", *direct, "temperature=0.7")

    def before(self) -> None:
        """What is looked at before anything runs."""
        self.twice("preflight", "preflight", "--unpinned")
        self.ours("preflight, as data", "preflight", "--unpinned", "-o", "json")
        self.twice("fit", "fit")
        self.ours("fit, as data", "fit", "-o", "json")
        self.twice("lock --from the host", "lock", "--from", "gpu-a")
        self.twice("verify --deep", "verify", "--deep")
        self.twice("plan", "plan")

    def serve(self) -> None:
        """The first server, and that a second apply does nothing."""
        self.ours("apply", "apply", "--locked")
        self.serving("apply")
        self.twice("no-op apply", "apply", "--locked")
        self.twice("status --deep", "status", "--deep")
        self.twice("smoke", "smoke")

    def bench(self) -> None:
        """With beamdeploy and without, in turns."""
        sizes = ("--concurrency", "1", "--requests", str(REQUESTS), "--input", str(INPUT))
        self.record.watch.silent.set()
        for number in (1, 2, 3):
            self.ours(f"bench {number}", "bench", *sizes, "-o", str(OUTPUT), "-o", "json")
            words = (str(PORT), MODEL, str(INPUT // 4), str(OUTPUT), str(REQUESTS), "temperature=0.7")
            self.record.step(f"direct {number}", sys.executable, str(HERE / "direct.py"), *words)
        self.record.watch.silent.clear()

    def change(self) -> None:
        """One flag more, back, and forth."""
        changed = f"engine.command={json.dumps([*self.command, '--default-seed', '7'])}"
        self.ours("plan of one flag", "plan", "-D", "-e", changed)
        self.ours("one flag changed", "apply", "-e", changed)
        self.ours("one flag changed, again", "apply", "-e", changed)
        for number in (1, 2):
            self.ours(f"rollback {number}", "rollback", "-y")
            self.serving(f"rollback {number}")
        self.ours("history", "history")

    def broken(self) -> None:
        """A flag that the server does not know, then too little memory."""
        wrong = f"engine.command={json.dumps([*self.command, '--no-such-flag'])}"
        other = f"engine.command={json.dumps([*self.command, '--default-seed', '9'])}"
        for number in (1, 2):
            self.ours(f"wrong flag {number}", "apply", "-e", wrong)
            self.serving(f"wrong flag {number}")
        for number in (1, 2):
            with hog(self.asked, "--leave-mib", "1024", "--at-start-of", "real"):
                self.ours(f"out of memory {number}", "apply", "-e", other)
            self.serving(f"out of memory {number}")

    def stranger(self) -> None:
        """Somebody holds most of the GPU beside the server that runs."""
        other = f"engine.command={json.dumps([*self.command, '--default-seed', '11'])}"
        with hog(self.asked, "--leave-mib", "1024"):
            self.twice("preflight beside a stranger", "preflight", "-e", other)
            self.ours("apply beside a stranger", "apply", "-e", other)
            self.ours("no-op apply beside a stranger", "apply", "-e", other)
            self.serving("beside a stranger")
            self.look()
        with hog(self.asked, "--leave-mib", "40960"):
            self.twice("preflight beside a stranger that leaves enough", "preflight", "-e", other)

    def look(self) -> None:
        """The answers of the host as they came, for the tests of what reads them."""
        asked = (
            "nonce=real",
            "name=real",
            f"port={PORT}",
            f"model_dir={self.asked.models}",
            "docker=docker",
            "gpus=yes",
        )
        self.record.step("look", "sh", "-c", script(), "script", *asked, f"folder={SNAPSHOT}")

    def doctor(self) -> None:
        """Of the host, and of each log that a failed server left."""
        self.twice("doctor", "doctor")
        for file in sorted(self.asked.out.glob("container-*.log")):
            for number in (1, 2):
                self.record.step(f"doctor of {file.name} {number}", *self.beamdeploy, "doctor", "--log", str(file))

    def end(self) -> None:
        """Gone, and the memory is free."""
        self.ours("destroy 1", "destroy", "-y")
        self.ours("destroy 2", "destroy", "-y")
        self.ours("preflight after destroy", "preflight")
        with hog(self.asked, "--leave-mib", "1024"):
            self.twice("preflight where too little is left", "preflight")
            self.twice("apply where too little is left", "apply")


STEPS: tuple[tuple[str, Callable[[Story], None]], ...] = (
    ("before", Story.before),
    ("serve", Story.serve),
    ("bench", Story.bench),
    ("change", Story.change),
    ("broken", Story.broken),
    ("stranger", Story.stranger),
    ("doctor", Story.doctor),
    ("end", Story.end),
)


def arguments() -> argparse.Namespace:
    """What this run is asked to do."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--folder", "--models", "--keys", "--out"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--image", required=True)
    parser.add_argument("--gpu", default="H200")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--gpu-access", default="devices")
    parser.add_argument("--docker-args", default="[]")
    parser.add_argument("--hog-python", default=sys.executable)
    parser.add_argument("--only", default="")
    return parser.parse_args()


def main() -> None:
    """Write the files, make the steps."""
    asked = arguments()
    for folder in (asked.folder, asked.out):
        folder.mkdir(parents=True, exist_ok=True)
    for name, told in (
        ("recipe.yaml", recipe(asked.image, asked.gpu, command_of(asked))),
        ("inventory.yaml", inventory(asked)),
    ):
        (asked.folder / name).write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    watch = Watch(asked.out)
    story = Story(asked, Record(asked.out, asked.folder, watch))
    for name, steps in STEPS:
        if not asked.only or name in asked.only.split(","):
            steps(story)
    watch.end()


if __name__ == "__main__":
    main()
