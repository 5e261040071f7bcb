"""Write docs/doctor.md from the catalogs of failures: `python scripts/doctor.py`; `--check` only compares."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from beamdeploy.engines.log import Failure, all_failures

DOCUMENT = Path(__file__).parents[1] / "docs" / "doctor.md"
HEAD = """# The doctor

`beamdeploy doctor --log FILE` (`-` is standard input) says the first cause in a log, the line that shows it, and
what to change. `beamdeploy doctor -i INVENTORY [RECIPE]` looks at hosts: docker, GPUs, containers, their logs,
whether a running container still sees its GPUs, and whether its server completes a request. Every failed `apply`
ends with the same words.

Exit codes: 0 nothing found, 1 something failed, 6 a server is not ready, 4 a host could not be reached.

The *first* cause is said and not the last symptom. A **root** is a cause. An **effect** is one only when the log
holds no root. A **summary** only tells that there is a cause further up. A **harmless** line looks like a failure
and is none. What no signature knows is told by the end of the first traceback (medium confidence), by the exit code
(medium), or by the last line that looks like an error (low).

The signatures are data: `beamdeploy/engines/ENGINE/log.yaml` and `beamdeploy/engines/shared-log.yaml`, each with a
log of its own in `tests/data/logs`. This list is written by `scripts/doctor.py`.
"""


def document() -> str:
    """The whole document."""
    engines: dict[str, list[Failure]] = {}
    for engine, failure in all_failures():
        engines.setdefault(engine or "Whatever the engine", []).append(failure)
    return HEAD + "".join(line for name, failures in engines.items() for line in section(name, failures))


def section(name: str, failures: list[Failure]) -> Iterator[str]:
    """The table of one catalog."""
    yield f"\n## {name}\n\n| id | kind, confidence | cause | what to do | source |\n|---|---|---|---|---|\n"
    for failure in failures:
        says = failure.says
        after = f" While weights are read: {failure.loading.cause}." if failure.loading else ""
        after += f" After the load: {failure.loaded.cause}." if failure.loaded else ""
        remedy = says.remedy.replace("{path}", f"`{says.path}`" if not says.path.startswith("@") else "the setting")
        cells = (f"`{failure.id}`", f"{failure.kind}, {failure.confidence}", says.cause + after, remedy, failure.source)
        yield "| " + " | ".join(cell.replace("|", "\\|").replace("!r}", "}") for cell in cells) + " |\n"


def main() -> int:
    """Write it, or compare."""
    if "--check" not in sys.argv:
        DOCUMENT.write_text(document(), encoding="utf-8")
        return 0
    return 0 if DOCUMENT.read_text(encoding="utf-8") == document() else 1


if __name__ == "__main__":
    sys.exit(main())
