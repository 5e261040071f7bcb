"""Runs the real `beamdeploy` as a user does, in a process of its own."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests import forked
from tests.lab import Lab, LabHost

BEAM = Path(__file__).parents[2] / "recipes" / "beam-nvfp4-tokenspeed-4xb300.yaml"


@dataclass(frozen=True)
class Ran:
    """How a command ended. `report`: its JSON, with `-o json`."""

    exit: int
    out: str
    err: str

    @property
    def report(self) -> dict[str, Any]:
        report: dict[str, Any] = json.loads(self.out)
        assert report["exit"] == self.exit
        return report

    def host(self, name: str) -> dict[str, Any]:
        host: dict[str, Any] = self.report["hosts"][name]
        return host

    @property
    def problems(self) -> str:
        """Every problem's three parts as text."""
        return "\n".join(f"{each['where']}: {each['what']} {each['remedy']}" for each in self.report["problems"])


def beamdeploy(*words: str, timeout: float = 120) -> Ran:
    """Run it without a terminal. A traceback fails the test: it is a bug."""
    done = forked.beamdeploy(*words, timeout=timeout, env=environment())
    assert "Traceback" not in done.stderr, done.stderr
    return Ran(done.returncode, done.stdout, done.stderr)


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("BEAMDEPLOY_")}


@dataclass(frozen=True)
class Job:
    """A recipe and an inventory in a folder, and the hosts they are about."""

    lab: Lab
    hosts: Sequence[LabHost]
    folder: Path

    @property
    def recipe(self) -> str:
        return str(self.folder / "beam.yaml")

    @property
    def inventory(self) -> str:
        return str(self.folder / "hosts.yaml")

    def write(self, change: Mapping[str, Any] | None = None) -> None:
        """The Beam recipe with the lab's pinned image, and what `change` says ("engine.max_num_seqs": 4)."""
        recipe = yaml.safe_load(BEAM.read_text(encoding="utf-8"))
        recipe["image"] = {"reference": self.lab.image("beam")}
        recipe["container"]["shm_size"] = "1g"  # the lab has less memory than a GPU server, and a plan says so
        for path, value in (change or {}).items():
            *sections, key = path.split(".")
            place = recipe
            for section in sections:
                place = place[section]
            place[key] = value
        ignored = "# beamdeploy: ignore-file BD400\n"  # which warns of that
        Path(self.recipe).write_text(ignored + yaml.safe_dump(recipe), encoding="utf-8")

    def write_inventory(self, *more: Mapping[str, Any], **variables: Any) -> None:
        """The hosts with `variables` on each; `more` are further hosts ({"name": …, variables})."""
        data = json.loads(self.lab.inventory(*(host.name for host in self.hosts)))
        hosts = data["all"]["children"]["lab"]["hosts"]
        for host in hosts.values():
            host.update(variables)
        for other in more:
            hosts[other["name"]] = {key: value for key, value in other.items() if key != "name"}
        Path(self.inventory).write_text(json.dumps(data), encoding="utf-8")

    def run(self, command: str, *words: str, output: str = "json", timeout: float = 120) -> Ran:
        target = () if command in ("status", "destroy") and words[:1] == ("-",) else (self.recipe,)
        rest = words[1:] if words[:1] == ("-",) else words
        form = ("-o", output) if command != "logs" else ()
        return beamdeploy(command, *target, "-i", self.inventory, *form, *rest, timeout=timeout)


def container_id(host: LabHost, name: str = "beam") -> str:
    """The id of a container, running or not; "" if there is none."""
    return host.docker("ps", "--all", "--quiet", "--no-trunc", "--filter", f"name=^/{name}$").strip()
