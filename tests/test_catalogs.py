"""The flag catalogs that are shipped, and the script that makes them from raw ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts import catalogs

SHIPPED = sorted(catalogs.ENGINES.glob("*/flags-*.json"))
FULL = [path for path in SHIPPED if path.name != "flags-beam.json"]


def test_a_raw_flag_keeps_what_validation_needs_and_loses_the_rest() -> None:
    raw = {
        "flag": "--b",
        "aliases": [],
        "type": "bool",
        "default": False,
        "group": "engine",
        "section": "S",
        "deprecated": False,
        "line": 7,
        "field": "b",
        "dest": "b",
        "takes_value": False,
        "negative": "--no-b",
        "negative_aliases": ["--off-b"],
        "nullable": True,
    }
    assert catalogs.flag(raw) == {
        "flag": "--b",
        "takes_value": False,
        "negatives": ["--no-b", "--off-b"],
        "type": "bool",
        "group": "engine",
        "section": "S",
        "nullable": True,
        "default": False,
    }


def test_a_catalog_is_sorted_with_one_flag_a_line() -> None:
    flags = [{"flag": "--z", "type": "int", "group": "engine"}, {"flag": "--a", "type": "str", "group": "engine"}]
    assert catalogs.text(catalogs.catalog({"engine": "e", "version": "1", "flags": flags})).splitlines() == [
        '{"engine": "e",',
        '"version": "1",',
        '"open": false,',
        '"source": "PyPI e 1 wheel",',
        '"flags": [',
        '{"flag":"--a","group":"engine","takes_value":true,"type":"str"},',
        '{"flag":"--z","group":"engine","takes_value":true,"type":"int"}',
        "]}",
    ]


@pytest.mark.parametrize("path", FULL, ids=lambda path: str(path.stem))
def test_a_shipped_catalog_is_what_the_script_would_write(path: Path) -> None:
    shipped = json.loads(path.read_text(encoding="utf-8"))
    assert path == catalogs.ENGINES / shipped["engine"] / f"flags-{shipped['version']}.json"
    assert path.read_text(encoding="utf-8") == catalogs.text(shipped)
    names = [name for flag in shipped["flags"] for name in (flag["flag"], *flag.get("aliases", []))]
    assert len(names) == len(set(names))


def test_the_beam_catalog_adds_to_flags_that_are_there() -> None:
    beam = json.loads((catalogs.ENGINES / "tokenspeed" / "flags-beam.json").read_text(encoding="utf-8"))
    base = json.loads((catalogs.ENGINES / "tokenspeed" / "flags-0.1.1.json").read_text(encoding="utf-8"))
    assert beam == json.loads(catalogs.text(catalogs.BEAM))
    assert set(beam["adds"]) <= {flag["flag"] for flag in base["flags"]}
