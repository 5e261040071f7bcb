"""One thing that was looked at before a deployment: what was seen, whether it stands in the way, and what to do."""

from __future__ import annotations

from dataclasses import dataclass

from beamdeploy.errors import Problem

LEVELS = {"block": "error", "warn": "warning", "ok": "info"}
_RULES = {
    # subject → its page, where a check names none
    "disk": "BD241",
    "docker": "BD242",
    "storage": "BD243",
    "toolkit": "BD244",
    "cgroups": "BD245",
    "fit": "BD246",
    "GPUs": "BD248",
    "family": "BD249",
    "driver": "BD250",
    "MIG": "BD251",
    "ECC": "BD252",
    "compute mode": "BD253",
    "NVLink fabric": "BD254",
    "memory": "BD255",
    "memlock": "BD256",
    "clock": "BD257",
    "image": "BD258",
    "architecture": "BD259",
    "CUDA": "BD261",
    "GPU memory": "BD262",
    "name": "BD263",
    "port": "BD264",
    "exposure": "BD265",
    "rank interface": "BD269",
    "rank ports": "BD270",
    "ranks": "BD271",
}


@dataclass(frozen=True)
class Check:
    """`subject`: what was looked at; `verdict`: ok, warn or block. An ok with a remedy is worth a word all the same.

    `rule`: its page for `beamdeploy explain`; "": that of its subject.
    """

    subject: str
    saw: str
    verdict: str = "ok"
    remedy: str = ""
    rule: str = ""

    @property
    def page(self) -> str:
        """The rule's id."""
        return self.rule or _RULES.get(self.subject, "")

    @property
    def problem(self) -> Problem:
        """The same as a problem; of an ok it is a note."""
        return Problem(self.saw, self.remedy, self.subject, rule=self.page, level=LEVELS[self.verdict])


def told(problem: Problem, subject: str) -> Check:
    """A problem that was found elsewhere, as a check."""
    verdict = next(verdict for verdict, level in LEVELS.items() if level == problem.level)
    return Check(problem.where or subject, problem.what, verdict, problem.remedy, problem.rule)
