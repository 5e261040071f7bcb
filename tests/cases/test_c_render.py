"""Group C: what the engine is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cases.conftest import Render
from tests.cases.intent import load
from tests.cases.recorder import SHELLS, sent

PLAIN = {"method": "dflash", "model": "/weights/dflash2", "num_speculative_tokens": 16}


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(("case", "model"), [("", "/weights/dflash2"), ("C05", "/weights/d flash's 2")])
def test_c05_speculative_settings_arrive_as_one_json_argument(
    render: Render, tmp_path: Path, shell: str, case: str, model: str
) -> None:
    words = render(load(case)).host("gpu-a")["words"]
    arrived = sent(shell, words, tmp_path / "bin")
    assert list(arrived) == words
    assert arrived.count("--speculative-config") == 1
    word = arrived[arrived.index("--speculative-config") + 1]
    assert json.loads(word) == {**PLAIN, "model": model}
    assert type(json.loads(word)["num_speculative_tokens"]) is int
    assert (word[:2], word[-1]) == ('{"', "}")
    assert not any(left in word for left in ("{{", "}}", "'{", "}'", "'method'", '"16"'))
