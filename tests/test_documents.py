"""Strict YAML: what is refused, where it is said to be, and that no text crashes or hangs the reading."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamdeploy.documents import MAX_BYTES, MAX_PROBLEMS, Document, Mark, dotted, load
from beamdeploy.errors import Problem

DOCUMENTS = Path(__file__).parent / "data" / "documents"


def told(text: str) -> list[tuple[int | None, int | None, str]]:
    """Line, column and rule of each problem of `text`."""
    return [(problem.line, problem.col, problem.rule) for problem in load("f.yaml", text)[1]]


def values(text: str) -> object:
    document, problems = load("f.yaml", text)
    assert problems == ()
    assert document is not None
    return document.data


def test_a_mapping_is_read_with_the_place_of_each_key_and_value() -> None:
    text = "name: beam\nenv:\n  RATIO: 1.10\n  list: [a, true]\n"
    assert load("f.yaml", text) == (
        Document(
            "f.yaml",
            {"name": "beam", "env": {"RATIO": 1.1, "list": ["a", True]}},
            {
                ("name",): Mark(1, 1),
                ("env",): Mark(2, 1),
                ("env", "RATIO"): Mark(3, 3),
                ("env", "list"): Mark(4, 3),
            },
            {
                (): Mark(1, 1),
                ("name",): Mark(1, 7),
                ("env",): Mark(3, 3),
                ("env", "RATIO"): Mark(3, 10),
                ("env", "list"): Mark(4, 9),
                ("env", "list", 0): Mark(4, 10),
                ("env", "list", 1): Mark(4, 13),
            },
            text,
            {("env", "RATIO"): "1.10", ("env", "list", 1): "true"},
        ),
        (),
    )


def test_a_place_that_is_not_there_is_that_of_its_nearest_ancestor() -> None:
    document, _ = load("f.yaml", "a:\n  b: 1\n")
    assert document is not None
    assert document.place(("a", "b")) == (2, 6)
    assert document.place(("a", "b"), key=True) == (2, 3)
    assert document.place(("a", "missing", 3)) == (2, 3)
    assert document.place(("missing",), key=True) == (1, 1)
    assert document.problem(("a", "b"), "what", "remedy", rule="BD900", level="warning") == Problem(
        "what", "remedy", file="f.yaml", line=2, col=6, rule="BD900", level="warning"
    )


@pytest.mark.parametrize(
    ("path", "words"), [((), "the file"), (("a",), "a"), (("a", 0, "b"), "a[0].b"), ((1, "a"), "[1].a")]
)
def test_a_path_is_said_with_dots(path: tuple[str | int, ...], words: str) -> None:
    assert dotted(path) == words


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "truth-words",
            [(2, 16, "BD019"), (3, 9, "BD019"), (4, 12, "BD019"), (5, 10, "BD019"), (12, 1, "BD013"), (13, 1, "BD013")],
        ),
        ("key-twice", [(7, 1, "BD012")]),
        ("key-twice-nested", [(4, 3, "BD012")]),
        ("emptied", []),
        ("refers-elsewhere", []),
        ("two-documents", [(2, 1, "BD011")]),
        ("percent", [(1, 7, "BD008")]),
        ("tab", [(3, 1, "BD006")]),
        ("colon", [(2, 12, "BD008")]),
        ("template", [(1, 8, "BD009")]),
        ("unclosed", [(1, 7, "BD007")]),
        ("scalar", [(1, 1, "BD010")]),
        ("list", [(1, 1, "BD010")]),
        ("comment-only", [(1, 1, "BD010")]),
        ("empty", [(1, 1, "BD010")]),
    ],
)
def test_every_fault_of_a_file_is_told_at_its_place(name: str, expected: list[tuple[int, int, str]]) -> None:
    _, problems = load(str(DOCUMENTS / f"{name}.yaml"))
    assert [(problem.line, problem.col, problem.rule) for problem in problems] == expected
    assert all(problem.what and problem.remedy and problem.file for problem in problems)


def test_a_key_written_twice_is_named_with_its_path_and_both_lines() -> None:
    document, problems = load(str(DOCUMENTS / "key-twice-nested.yaml"))
    assert [problem.what for problem in problems] == ["the key A is written twice: env.A on lines 2 and 4"]
    assert document is not None
    assert document.data == {"env": {"A": "1", "B": "2"}}


def test_keys_below_a_key_written_twice_are_not_told_too() -> None:
    assert told("a: {b: 1}\na: {b: 1}\n") == [(2, 1, "BD012")]


@pytest.mark.parametrize(
    ("text", "rule", "said"),
    [
        ("2222:22", "BD020", "133342"),
        ("8000:59", "BD020", "480059"),
        ("8080:30", "BD020", "484830"),
        ("-1:30", "BD020", "-90"),
        ("1:30.5", "BD020", "base-60"),
        ("017500", "BD021", "8000"),
        ("0899", "BD021", "octal"),
        ("8_000", "BD022", "8_000"),
        ("0x1f", "BD022", "0x1f"),
        ("0b11", "BD022", "0b11"),
        ("+5", "BD022", "+5"),
        ("1e5", "BD022", "1e5"),
        ("1.5e+3", "BD022", "1.5e+3"),
        (".5", "BD022", ".5"),
        ("1.", "BD022", "1."),
        (".inf", "BD023", ".inf"),
        ("-.INF", "BD023", "-.INF"),
        (".nan", "BD023", ".nan"),
        ("2026-01-02", "BD024", "date"),
        ("2026-01-02T03:04:05Z", "BD024", "date"),
        ("yes", "BD019", "yes is read as true"),
        ("Off", "BD019", "Off is read as false"),
        ("9223372036854775808", "BD025", "9223372036854775808"),
        ("9" * 5000, "BD025", "too large"),
        ("9" * 400 + ".0", "BD025", "too large"),
    ],
)
def test_what_yaml_would_turn_into_something_else_is_refused(text: str, rule: str, said: str) -> None:
    document, problems = load("f.yaml", f"port: {text}\n")
    assert [(problem.line, problem.col, problem.rule) for problem in problems] == [(1, 7, rule)]
    assert said in problems[0].what
    assert "quote it" in problems[0].remedy
    assert document is not None
    assert document.faults == {("port",)}


@pytest.mark.parametrize("text", ["2222:22", "017500", "8_000", "1e5", "2026-01-02", "yes", "0x1f", ".inf"])
def test_the_same_in_quotes_is_text(text: str) -> None:
    assert values(f"port: '{text}'\n") == {"port": text}


@pytest.mark.parametrize(
    "text", ["8000:8000", "127.0.0.1:8000:8000", "0o17500", "y", "n", "45m", "1.2.3", "-", "=", "a<<b"]
)
def test_plain_text_stays_text(text: str) -> None:
    assert values(f"port: [{text}]\n" if text != "-" else "port: '-'\n") == {"port": [text] if text != "-" else text}


def test_numbers_truth_and_null_are_read() -> None:
    assert values("a: [0, -5, 9223372036854775807, 0.0, -1.50, true, False, ~, null, '']\nb:\n") == {
        "a": [0, -5, 2**63 - 1, 0.0, -1.5, True, False, None, None, ""],
        "b": None,
    }


@pytest.mark.parametrize(
    "key", ["8000", "1.5", "on", "no", "true", "~", "2026-01-02", "1e5", "? [a]\n", "? {a: b}\n", "*x "]
)
def test_a_key_that_is_not_text_is_refused(key: str) -> None:
    assert [rule for *_, rule in told(f"x: &x 1\n{key}: 1\n")] == ["BD013"]


def test_an_empty_key_is_refused() -> None:
    assert told("?\n: 1\n") == [(1, 2, "BD013")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: !foo 1\n", [(1, 4, "BD015")]),
        ("a: !!python/object/apply:os.system [ls]\n", [(1, 4, "BD015")]),
        ("a: !!str 1\n", [(1, 4, "BD015")]),
        ("a: !!set {b}\nc: !d e\n", [(1, 4, "BD015"), (2, 4, "BD015")]),
        ("a: !vault |\n  $ANSIBLE_VAULT;1.1;AES256\n", [(1, 4, "BD016")]),
        ("a: &a {x: 1}\nb: {<<: *a, y: 2}\n", [(2, 5, "BD014")]),
        ("a: *b\n", [(1, 4, "BD017")]),
        ("a: &a [*a]\n", [(1, 8, "BD017")]),
        ("a: &x 1\nb: &x 2\n", [(2, 4, "BD017")]),
        ("{{ a }}: 1\n", [(1, 1, "BD009")]),
        ("a: {{ b }}/c\n", [(1, 5, "BD009")]),
        ("a: 1\n{% if b %}\n", [(2, 2, "BD009")]),
        ('a: "\\e[0m"\n', [(1, 4, "BD004")]),
        ("a: x\x1b\n", [(1, 5, "BD004")]),
        ("a: x\n\ufeffb: 1\n", [(2, 1, "BD004")]),
        ("a: \ud800\n", [(1, 4, "BD004")]),
        ('"a\\nb": 1\n', [(1, 1, "BD004")]),
        ("a: [1, 2\n", [(2, 1, "BD005")]),
        ("a: @x\n", [(1, 4, "BD008")]),
        ("%YAML 2.0\n---\na: 1\n", [(1, 1, "BD005")]),
    ],
)
def test_what_is_no_plain_value_is_refused_at_its_place(text: str, expected: list[tuple[int, int, str]]) -> None:
    assert told(text) == expected


def test_an_alias_is_a_copy_that_points_to_where_it_is_written() -> None:
    document, problems = load("f.yaml", "a: &a {x: 1.10}\nb: *a\n")
    assert problems == ()
    assert document is not None
    assert document.data == {"a": {"x": 1.1}, "b": {"x": 1.1}}
    assert document.place(("b",)) == (2, 4)
    assert document.place(("b", "x")) == (1, 11)
    assert document.written == {("a", "x"): "1.10", ("b", "x"): "1.10"}


def test_line_ends_of_windows_and_a_byte_order_mark_are_no_fault(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_bytes(b"\xef\xbb\xbfname: beam\r\nnote: |\r\n  two\r\n  lines\r\n")
    document, problems = load(str(file))
    assert problems == ()
    assert document is not None
    assert document.data == {"name": "beam", "note": "two\nlines\n"}
    assert document.keys == {("name",): Mark(1, 1), ("note",): Mark(2, 1)}


def test_a_file_that_cannot_be_read_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text("a: 1\n")
    missing = str(tmp_path / "recipes.yaml")
    near = f"did you mean {tmp_path / 'recipe.yaml'}?"
    assert load(missing) == (None, (Problem("there is no such file", near, file=missing, rule="BD001"),))
    assert load(str(tmp_path)) == (
        None,
        (Problem("this is a folder", "name a file in it", file=str(tmp_path), rule="BD001"),),
    )
    assert [problem.rule for problem in load("a\0b")[1]] == ["BD001"]


def test_a_dash_is_standard_input() -> None:
    words = (sys.executable, "-c", "from beamdeploy.documents import load; d, p = load('-'); print(d.file, d.data, p)")
    done = subprocess.run(words, input="a: 1\n", text=True, capture_output=True, check=True)
    assert done.stdout == "- {'a': 1} ()\n"


def test_reading_does_not_wait_for_the_schema_library() -> None:
    code = "import sys, beamdeploy.documents; print('jsonschema' in sys.modules)"
    done = subprocess.run((sys.executable, "-c", code), text=True, capture_output=True, check=True)
    assert done.stdout == "False\n"


def test_a_file_that_is_not_utf8_is_told_at_the_byte(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_bytes("a: 1\nb: ü".encode("latin-1"))
    what = "the file is not UTF-8 (byte 0xfc)"
    assert load(str(file)) == (
        None,
        (Problem(what, "save it as UTF-8", file=str(file), line=2, col=4, rule="BD002"),),
    )


def test_a_file_above_the_limit_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    with file.open("wb") as stream:
        stream.truncate(MAX_BYTES + 1)
    assert [problem.rule for problem in load(str(file))[1]] == ["BD003"]


def test_all_faults_are_told_at_once_but_not_without_end() -> None:
    assert len(told("a: 1\n" * 50)) == 49
    assert len(told("a: 1\n" * 100_000)) == MAX_PROBLEMS + 2


MEGABYTES = 10 * 1024 * 1024
BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{at}: &a{at} [{', '.join([f'*a{at - 1}'] * 10)}]\n" for at in range(1, 12)
)


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        pytest.param(BOMB, ["BD017"], id="alias-bomb"),
        pytest.param(
            "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 400)), ["BD018"], id="chain"
        ),
        pytest.param("a:\n" + " [\n" * 100_000, ["BD018"], id="deep-lines"),
        pytest.param("a: " + "[" * MEGABYTES, ["BD018"], id="deep"),
        pytest.param("a: " + "{" * 200, ["BD009"], id="braces"),
        pytest.param("".join(f"k{at}: {at}\n" for at in range(700_000)), ["BD003"], id="many"),
        pytest.param("a: " + "x" * MEGABYTES, [], id="long"),
        pytest.param("a: " + "9" * MEGABYTES, ["BD025"], id="digits"),
        pytest.param("a: 0" + "_" * MEGABYTES + "x", [], id="underscores"),
        pytest.param("a: 1" + ":1" * (MEGABYTES // 2), [], id="colons"),
        pytest.param('a: "' + "x\n" * 1_000_000, ["BD007"], id="unclosed"),
        pytest.param("# x\n" * (MEGABYTES // 4), ["BD010"], id="comments"),
    ],
)
def test_what_is_made_to_hang_is_answered_in_time(text: str, rules: list[str]) -> None:
    began = time.monotonic()
    assert [rule for *_, rule in told(text)] == rules
    assert time.monotonic() - began < 20  # seconds; about one on the slowest machine seen


def well_formed(document: Document | None, problems: tuple[Problem, ...]) -> bool:
    told_fully = all(each.what and each.remedy and each.rule and each.line and each.col for each in problems)
    return told_fully and (plain(document.data) if document else bool(problems))


def plain(value: object) -> bool:
    if isinstance(value, dict):
        return all(type(key) is str and plain(each) for key, each in value.items())
    if isinstance(value, list):
        return all(plain(each) for each in value)
    return value is None or type(value) in (str, int, bool) or (isinstance(value, float) and math.isfinite(value))


@settings(deadline=None)
@given(st.text())
def test_no_text_crashes(text: str) -> None:
    assert well_formed(*load("f.yaml", text))


WORDS = st.sampled_from(
    [
        *["a", "b:", "- ", "? ", ": ", "\n", "\n  ", "\n    ", "[", "]", "{", "}", ",", "'", '"', "&x ", "*x", "!t "],
        *["|", ">", "# c", "---\n", "...\n", "%YAML 1.1\n", "<<: ", "yes", "1:30", "07", "1e5", "~", "\t", "{{ x }}"],
        *["2026-01-02", "\\", "a: 1\n", "b: {c: [d]}\n", '"\\x00"', "\ufeff", "\u2028", "@", "1_0", ".inf", "9" * 30],
    ]
)


@settings(max_examples=500, deadline=None)
@given(st.lists(WORDS, max_size=30).map("".join))
def test_no_text_of_yaml_words_crashes(text: str) -> None:
    assert well_formed(*load("f.yaml", text))


@settings(deadline=None)
@given(st.binary())
def test_no_bytes_crash(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    file = tmp_path_factory.getbasetemp() / "bytes.yaml"
    file.write_bytes(raw)
    assert well_formed(*load(str(file)))


SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.text("ab \n:#'\"-é"))
TREES = st.recursive(SCALARS, lambda below: st.lists(below) | st.dictionaries(st.text("ab-é", min_size=1), below))


@settings(deadline=None)
@given(st.dictionaries(st.text("ab-é", min_size=1), TREES))
def test_json_is_read_as_it_is(tree: dict[str, object]) -> None:
    assert values(json.dumps(tree, ensure_ascii=False)) == tree
