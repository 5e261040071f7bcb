"""What the container's user may read, by mode and owner."""

from __future__ import annotations

import pytest

from beamdeploy.look.facts import Restricted, Weights
from beamdeploy.weights.permissions import check

SHARD = Restricted("a.safetensors", "-rw-r-----", 1000, 2000)
FOLDER = Restricted(".", "drwxr-x---", 1000, 2000)
CLOSED = Restricted("b.safetensors", "-rw-------", 0, 0)


def levels(user: str, *entries: Restricted) -> list[str]:
    facts = Weights("nvfp4", (), {}, None, "", (), (), restricted=entries)
    return [problem.level for problem in check("/srv/nvfp4", "nvfp4", user, facts)]


@pytest.mark.parametrize(
    ("user", "found"),
    [
        ("", []),
        ("0:5", []),
        ("root", []),
        ("1000:9", []),
        ("7:2000", []),
        ("7:9,2000", []),
        ("7:9", ["error"]),
        ("7", ["warning"]),
        ("vllm", ["warning"]),
        ("vllm:2000", []),
        ("vllm:staff", ["warning"]),
    ],
)
def test_owner_group_and_others(user: str, found: list[str]) -> None:
    assert (levels(user, SHARD), levels(user, FOLDER)) == (found, found)


def test_what_is_closed_to_all_but_its_owner_is_sure_of_a_number_and_not_of_a_name() -> None:
    assert (levels("7", CLOSED), levels("vllm", CLOSED), levels("vllm", SHARD, CLOSED)) == (
        ["error"], ["warning"], ["warning"],
    )  # fmt: skip


def test_a_folder_that_may_be_read_and_not_entered_is_found() -> None:
    assert levels("7:9", Restricted("/", "drwxr--r--", 0, 0)) == ["error"]


def test_hidden_folders_hold_no_weights() -> None:
    assert levels("7:9", Restricted(".cache", "drwx------", 0, 0)) == []
