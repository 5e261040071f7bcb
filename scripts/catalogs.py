"""Turn raw flag catalogs into the ones that beamdeploy ships: `python scripts/catalogs.py RAW.json…`.

A raw catalog is `{engine, version, source, flags: [{flag, …}]}` as read from an engine's wheel. What is written is
`beamdeploy/engines/ENGINE/flags-VERSION.json`: one flag a line, sorted, only keys that say something. Absent keys mean:
no aliases, no negatives, any value, takes one value, not repeatable, no default.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ENGINES = Path(__file__).resolve().parent.parent / "beamdeploy" / "engines"

SCALARS = ("type", "group", "section", "help", "nargs", "fallback", "launcher_default", "engine_default")
LISTS = ("aliases", "choices", "known_values")
SWITCHES = (
    "repeatable",
    "required",
    "positional",
    "nullable",
    "human_readable",
    "deprecated",
    "single_value_only",
    "choices_vary_by_build",
    "shadows_gateway_flag",
)

BEAM: Mapping[str, object] = {
    "engine": "tokenspeed",
    "version": "beam",
    "extends": "0.1.1",
    "open": True,
    "source": "the Beam page of TokenSpeed: what its image takes beyond 0.1.1",
    "adds": {
        "--attention-backend": {"known_values": ["trtllm_mha"]},
        "--drafter-attention-backend": {"known_values": ["trtllm_mha"]},
        "--reasoning-parser": {"choices": ["beam"]},
        "--tool-call-parser": {"choices": ["beam"]},
    },
}


def negatives(raw: Mapping[str, object]) -> list[str]:
    """Every spelling that turns a switch off, the documented one first."""
    hidden = raw.get("negative_aliases", [])
    assert isinstance(hidden, list)
    return [*([str(raw["negative"])] if raw.get("negative") else []), *map(str, hidden)]


def flag(raw: Mapping[str, object]) -> dict[str, object]:
    """One flag in the project's shape; keys that say nothing are left out, `takes_value` never is."""
    kept: dict[str, object] = {"flag": raw["flag"], "takes_value": raw.get("takes_value", True)}
    kept |= {key: raw[key] for key in LISTS if raw.get(key)}
    kept |= {key: raw[key] for key in SCALARS if raw.get(key) is not None}
    kept |= {key: True for key in SWITCHES if raw.get(key)}
    if negatives(raw):
        kept["negatives"] = negatives(raw)
    if raw.get("default") is not None:
        kept["default"] = raw["default"]
    return kept


def catalog(raw: Mapping[str, object]) -> dict[str, object]:
    """A closed catalog: a flag that is not in it is an error."""
    flags = raw["flags"]
    assert isinstance(flags, list)
    source = f"PyPI {raw['engine']} {raw['version']} wheel"
    head = {"engine": raw["engine"], "version": raw["version"], "open": False, "source": source}
    return head | {"flags": sorted(map(flag, flags), key=lambda each: str(each["flag"]))}


def text(shaped: Mapping[str, object]) -> str:
    """JSON with one flag a line, so that a new engine version is a readable diff."""
    lines = [f"{json.dumps(key)}: {json.dumps(shaped[key], sort_keys=True)}" for key in shaped if key != "flags"]
    flags = shaped.get("flags")
    if isinstance(flags, list):
        rows = ",\n".join(json.dumps(each, sort_keys=True, separators=(",", ":")) for each in flags)
        lines.append(f'"flags": [\n{rows}\n]')
    return "{" + ",\n".join(lines) + "}\n"


def write(shaped: Mapping[str, object]) -> Path:
    """Write the catalog to its place and say where that is."""
    path = ENGINES / str(shaped["engine"]) / f"flags-{shaped['version']}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text(shaped), encoding="utf-8")
    return path


def main(paths: Sequence[str]) -> int:
    """Convert every named file; the Beam image's catalog is written with them."""
    for path in paths:
        sys.stdout.write(f"{write(catalog(json.loads(Path(path).read_text(encoding='utf-8'))))}\n")
    sys.stdout.write(f"{write(BEAM)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
