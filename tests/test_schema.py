"""Faults of values in words, at their line; and the defaults of a schema."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from beamdeploy.documents import MAX_PROBLEMS, Document, load
from beamdeploy.errors import Problem
from beamdeploy.schema import check, check_against, defaults, defaults_from, known, load_schema

DOCUMENTS = Path(__file__).parent / "data" / "documents"


def document_of(text: str) -> Document:
    document, _ = load("f.yaml", text)
    assert document is not None
    return document


def closed(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": properties}


def told(text: str, schema: Mapping[str, Any]) -> list[tuple[int | None, int | None, str, str, str]]:
    problems = check_against(document_of(text), schema)
    return [(each.line, each.col, each.rule, each.what, each.remedy) for each in problems]


def test_valid_values_have_no_problem() -> None:
    assert told("name: beam\n", closed(name={"type": "string"})) == []


def test_a_problem_has_file_line_and_column() -> None:
    assert check_against(document_of("a: 1\nnmae: beam\n"), closed(a={}, name={})) == (
        Problem("unknown key nmae", "did you mean name?", file="f.yaml", line=2, col=1, rule="BD030"),
    )


ENGINE = closed(
    tensor_parallel={"type": "integer", "minimum": 1, "examples": [4]},
    fraction={"type": "number", "exclusiveMinimum": 0, "maximum": 1},
    dtype={"enum": ["auto", "bfloat16", "float16"]},
    served={"type": "string", "pattern": "^[a-z][a-z0-9]*$", "x-pattern-says": "a name: small letters and digits"},
    caching={"type": "boolean"},
    gpus={"type": "array", "items": {"type": "integer"}, "uniqueItems": True, "minItems": 1},
    version={"const": "v1"},
    args={"type": "object"},
    loose={"type": "string", "pattern": "^x"},
    short={"type": "string", "maxLength": 3},
)
RECIPE = closed(
    engine={"$ref": "#/$defs/engine"},
    env={"type": "object", "propertyNames": {"pattern": "^[A-Z_]+$", "x-pattern-says": "the name of a variable"}},
) | {"$defs": {"engine": ENGINE}}
RECIPE["properties"]["env"]["additionalProperties"] = {"type": "string"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tensor-parallel: 4", (2, 3, "BD030", "unknown key engine.tensor-parallel", "did you mean tensor_parallel?")),
        ("env: {}", (2, 3, "BD030", "unknown key engine.env", "did you mean env?")),
        (
            "tensor_parallel:",
            (2, 19, "BD031", "engine.tensor_parallel is empty (null): remove the key or give a value", None),
        ),
        ("dtype: ~", (2, 10, "BD031", "engine.dtype is empty (null): remove the key or give a value", None)),
        (
            'tensor_parallel: "4"',
            (
                2,
                20,
                "BD033",
                "engine.tensor_parallel: a whole number is expected, this is text",
                "remove the quotes: 4",
            ),
        ),
        (
            "tensor_parallel: 4.0",
            (2, 20, "BD033", "engine.tensor_parallel: a whole number is expected, this is a number: 4.0", "write 4"),
        ),
        (
            "tensor_parallel: true",
            (
                2,
                20,
                "BD033",
                "engine.tensor_parallel: a whole number is expected, this is true",
                "write one whole number",
            ),
        ),
        (
            "tensor_parallel: 0",
            (2, 20, "BD036", "engine.tensor_parallel: at least 1 is needed, it is 0", "give at least 1"),
        ),
        ("fraction: 0.0", (2, 13, "BD036", "engine.fraction: more than 0 is needed, it is 0.0", "give more than 0")),
        ("fraction: 1.5", (2, 13, "BD036", "engine.fraction: at most 1 is needed, it is 1.5", "give at most 1")),
        (
            "dtype: bf16",
            (2, 10, "BD034", "engine.dtype: bf16 is not one of auto, bfloat16, float16", "write one of them"),
        ),
        (
            "dtype: bfloat-16",
            (2, 10, "BD034", "engine.dtype: bfloat-16 is not one of auto, bfloat16, float16", "did you mean bfloat16?"),
        ),
        (
            "served: --x",
            (2, 11, "BD035", "engine.served: --x is not a name: small letters and digits", "give it this form"),
        ),
        (
            'served: "x\\n"',
            (2, 11, "BD035", 'engine.served: "x\\n" is not a name: small letters and digits', "give it this form"),
        ),
        (
            "served: 1.10",
            (
                2,
                11,
                "BD033",
                "engine.served: text is expected, this is a number: 1.10 is read as 1.1",
                'quote it: "1.10"',
            ),
        ),
        ("served: 8", (2, 11, "BD033", "engine.served: text is expected, this is a number: 8", 'quote it: "8"')),
        (
            "served: True",
            (2, 11, "BD033", "engine.served: text is expected, this is true (written True)", 'quote it: "True"'),
        ),
        (
            "served: [a]",
            (2, 11, "BD033", "engine.served: text is expected, this is a list", "write one text, not several"),
        ),
        (
            'caching: "true"',
            (2, 12, "BD033", "engine.caching: true or false is expected, this is text", "remove the quotes: true"),
        ),
        ("gpus: 0", (2, 9, "BD033", "engine.gpus: a list is expected, this is a number: 0", "write a list: [0]")),
        (
            "gpus: []",
            (2, 9, "BD037", "engine.gpus is empty: at least one item is needed", "give a value or remove the key"),
        ),
        ("gpus: [0, 1, 0]", (2, 16, "BD038", "engine.gpus[2]: 0 is in the list twice", "remove one of them")),
        ("gpus: [0, x]", (2, 13, "BD033", "engine.gpus[1]: a whole number is expected, this is text", None)),
        ("version: v2", (2, 12, "BD034", "engine.version: v2 is not v1", "write v1")),
        (
            "args: x",
            (
                2,
                9,
                "BD033",
                "engine.args: a mapping is expected, this is text",
                "write a mapping: `key: value` lines below it",
            ),
        ),
        ("loose: y", (2, 10, "BD035", "engine.loose: y is not text that matches ^x", None)),
        ("short: four", (2, 10, "BD037", "engine.short: at most 3 characters is needed, it is 4", None)),
    ],
)
def test_a_fault_is_said_in_words_at_its_place(text: str, expected: tuple[int, int, str, str, str | None]) -> None:
    [(*place, what, remedy)] = told(f"engine:\n  {text}\n", RECIPE)
    assert (*place, what) == expected[:4]
    assert expected[4] in (None, remedy)


def test_a_name_that_is_none_is_told_at_the_key() -> None:
    assert told("env: {'A=B': x}\n", RECIPE) == [
        (1, 7, "BD039", "env: the name A=B is not the name of a variable", "rename the key")
    ]


def test_a_missing_key_is_named_at_its_mapping() -> None:
    schema = closed(name={"type": "string", "examples": ["beam"]}, engine=ENGINE | {"required": ["tensor_parallel"]})
    schema["required"] = ["name", "engine"]
    assert told("engine: {}\n", schema) == [
        (1, 1, "BD032", "engine.tensor_parallel is missing", "add it, for example tensor_parallel: 4"),
        (1, 1, "BD032", "name is missing", "add it, for example name: beam"),
    ]


SECRET = {
    "oneOf": [
        closed(env={"type": "string"}) | {"required": ["env"]},
        closed(file={"type": "string"}) | {"required": ["file"]},
    ]
}
WEIGHTS = {"anyOf": [{"type": "string"}, closed(path={"type": "string"}, source={"type": "string"})]}
BY_KIND = {
    "oneOf": [
        closed(kind={"const": "a"}, size={"type": "integer"}) | {"required": ["kind"]},
        closed(kind={"const": "b"}, size={"type": "string"}) | {"required": ["kind"]},
    ]
}


@pytest.mark.parametrize(
    ("value", "schema", "expected"),
    [
        ("", SECRET, ["BD031 v is empty (null): remove the key or give a value"]),
        ("x", SECRET, ["BD033 v: a mapping is expected, this is text"]),
        ("{fil: x}", SECRET, ["BD032 v.env is missing", "BD030 unknown key v.fil"]),
        ("{file: 1}", SECRET, ["BD033 v.file: text is expected, this is a number: 1"]),
        ("{file: x, other: y}", SECRET, ["BD030 unknown key v.other"]),
        ("1", WEIGHTS, ["BD033 v: text or a mapping is expected, this is a number: 1"]),
        ("{path: 1}", WEIGHTS, ["BD033 v.path: text is expected, this is a number: 1"]),
        ("{kind: b, size: 1}", BY_KIND, ["BD033 v.size: text is expected, this is a number: 1"]),
        (
            "8",
            {"anyOf": [{"enum": ["auto"]}, {"type": "integer", "maximum": 4}]},
            ["BD036 v: at most 4 is needed, it is 8"],
        ),
        ("c", {"anyOf": [{"const": "a"}, {"const": "b"}]}, ["BD034 v: c is not one of a, b"]),
        ("{}", {"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, ["BD032 v: a or b is missing"]),
        (
            "{a: 1, b: 1}",
            {"oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
            ["BD041 v: a and b exclude each other"],
        ),
        ("{a: 1}", {"dependentRequired": {"a": ["b"]}}, ["BD040 v.a needs v.b, which is missing"]),
        ("{a: 1, b: 1}", {"not": {"required": ["a", "b"]}}, ["BD041 v: a, b cannot be given together"]),
        ("1", {"not": {"const": 1}, "x-not-says": "one is none"}, ["BD041 v: one is none"]),
        ("1", False, ["BD041 v cannot be given here"]),
    ],
)
def test_of_several_forms_the_real_fault_is_told(value: str, schema: Any, expected: list[str]) -> None:
    assert [f"{rule} {what}" for _, _, rule, what, _ in told(f"v: {value}\n", closed(v=schema))] == expected


def test_what_the_reading_has_told_is_not_told_again() -> None:
    document, problems = load("f.yaml", "caching: yes\non: 1\n")
    assert [problem.rule for problem in problems] == ["BD019", "BD013"]
    assert document is not None
    assert check_against(document, ENGINE) == ()


def test_words_for_truth_numbers_and_null_in_an_environment_are_all_told_at_once() -> None:
    document, problems = load(str(DOCUMENTS / "truth-words.yaml"))
    assert document is not None
    found = sorted([*problems, *check_against(document, RECIPE)], key=lambda each: each.line or 0)
    assert [(each.line, each.rule) for each in found] == [
        *((line, "BD019") for line in range(2, 6)),
        *((line, "BD033") for line in range(6, 8)),
        *((line, "BD031") for line in range(8, 10)),
        *((line, "BD013") for line in range(12, 14)),
    ]


def test_sections_emptied_by_comments_are_told_each() -> None:
    document, problems = load(str(DOCUMENTS / "emptied.yaml"))
    assert (problems, document is not None) == ((), True)
    assert document is not None
    speculative = {"oneOf": [closed(method={"const": "dflash"}), closed(method={"const": "eagle"})]}
    engine = closed(speculative=speculative, parser={"type": "string"}, tensor_parallel={"type": "integer"})
    schema = closed(name={}, engine=engine, env={"type": "object"}, gpus={"type": "array"})
    what = "{} is empty (null): remove the key or give a value"
    assert [each.what for each in check_against(document, schema)] == [
        what.format(name) for name in ("engine.speculative", "engine.parser", "engine.tensor_parallel", "env", "gpus")
    ]


def test_a_recipe_that_points_elsewhere_is_unknown_keys_and_nothing_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise AssertionError("a connection was tried")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    document, problems = load(str(DOCUMENTS / "refers-elsewhere.yaml"))
    assert (problems, document is not None) == ((), True)
    assert document is not None
    assert [each.what for each in check_against(document, closed(name={}, engine=ENGINE))] == [
        "unknown key $schema",
        "unknown key $ref",
        "unknown key engine.$ref",
    ]


def test_a_file_of_strange_keys_is_answered_in_time() -> None:
    document = document_of("".join(f"k{at}: {at}\n" for at in range(100_000)))
    began = time.monotonic()
    problems = check(document, "recipe")
    assert len(problems) == MAX_PROBLEMS + 1
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("name", ["recipe", "inventory", "lock"])
def test_the_packaged_schemas_are_schemas(name: str) -> None:
    Draft202012Validator.check_schema(dict(load_schema(name)))
    assert all(problem.file == "f.yaml" for problem in check(document_of("nmae: x\n"), name))


def test_defaults_fill_what_is_absent_and_leave_what_is_given() -> None:
    nested = closed(a={"default": 1}, b={"default": []}) | {"default": {}}
    schema = closed(x={"$ref": "#/$defs/nested"}, y=closed(c={"default": "d"}), z={"type": "string"})
    schema["$defs"] = {"nested": nested}
    given_values = {"x": {"a": 2}}
    assert defaults_from({}, schema) == {"x": {"a": 1, "b": []}}
    assert defaults_from(given_values, schema) == {"x": {"a": 2, "b": []}}
    assert defaults_from({"y": {}}, schema) == {"x": {"a": 1, "b": []}, "y": {"c": "d"}}
    assert given_values == {"x": {"a": 2}}


def test_defaults_reach_list_items_and_named_values() -> None:
    item = closed(a={"type": "integer", "default": 1})
    schema = {"properties": {"l": {"type": "array", "items": item}}, "additionalProperties": item}
    given_values = {"l": [{}, {"a": 2}], "other": {}}
    assert defaults_from(given_values, schema) == {"l": [{"a": 1}, {"a": 2}], "other": {"a": 1}}


def schemas_below(schema: object) -> Iterator[Mapping[str, Any]]:
    if isinstance(schema, Mapping):
        yield schema
        schema = list(schema.values())
    if isinstance(schema, list):
        yield from (below for each in schema for below in schemas_below(each))


@pytest.mark.parametrize("name", ["recipe", "inventory", "lock"])
def test_no_form_of_several_has_a_default_since_none_would_be_filled(name: str) -> None:
    forms = [each.get(word, ()) for each in schemas_below(load_schema(name)) for word in ("oneOf", "anyOf")]
    assert not [below for form in forms for below in schemas_below(list(form)) if "default" in below]


def test_a_default_is_never_shared_between_two_fillings() -> None:
    first = defaults_from({}, closed(a={"default": []}))
    first["a"].append(1)
    assert defaults_from({}, closed(a={"default": []})) == {"a": []}
    assert load_schema("recipe") is load_schema("recipe")


TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda below: (
        st.lists(below, max_size=3)
        | st.dictionaries(st.sampled_from(["engine", "name", "image", "env", "container", "x"]), below)
    ),
)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from([*load_schema("recipe")["properties"], "all", "x"]), TREES))
def test_no_values_crash_the_check_or_the_defaults(tree: dict[str, Any]) -> None:
    for name in ("recipe", "inventory", "lock"):
        document = Document("f.yaml", tree, {}, {}, "")
        problems = check(document, name)
        assert all(each.what and each.remedy and each.rule and each.line for each in problems)
        assert not any("given schemas" in each.what for each in problems)
        defaults(tree, name)


@pytest.mark.parametrize("start", ["sha256:", ""])
def test_an_images_id_in_the_place_of_its_reference_is_refused_with_the_key_that_takes_it(start: str) -> None:
    problems = check(document_of(f"image:\n  reference: {start}{'a1' * 32}\n"), "recipe")
    assert [(each.rule, each.what, each.remedy) for each in problems if each.line == 2] == [
        (
            "BD035",
            "image.reference: this is an image's id, which no registry knows",
            "write image.id: sha256:…",
        )
    ]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "beamdeploy" / "good" / "names"


GOOD, NEARLY = "all: {hosts: {a: {port: 22}}}\n", "all: {hosts: {a: {port: '22'}}}\n"


def test_data_that_was_found_good_is_known_and_no_other(cache: Path) -> None:
    assert check(document_of(GOOD), "inventory") == ()
    (name,) = cache.read_text().split()
    assert (check(document_of(GOOD), "inventory"), cache.read_text().split()) == ((), [name])
    assert check(document_of(NEARLY), "inventory") != () != check(document_of(GOOD), "recipe")
    assert cache.read_text().split() == [name]


def test_what_is_known_to_be_good_is_not_validated_again(cache: Path) -> None:
    check(document_of(GOOD), "inventory")
    program = (
        "import sys\nfrom beamdeploy import documents, schema\n"
        f"found, _ = documents.load('f.yaml', {GOOD!r})\nassert schema.check(found, 'inventory') == ()\n"
        "print('jsonschema' in sys.modules)"
    )
    again = [subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout]
    cache.unlink()
    again += [subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout]
    assert again == ["False\n", "True\n"]


@pytest.mark.parametrize("damage", [b"\xff\xfe", b"", b"0" * 300_000])
def test_a_damaged_or_long_list_of_what_is_good_does_no_harm(cache: Path, damage: bytes) -> None:
    check(document_of(GOOD), "inventory")
    (name,) = cache.read_text().split()
    cache.write_bytes(damage)
    for _ in range(2):
        assert (check(document_of(GOOD), "inventory"), check(document_of(NEARLY), "inventory") != ()) == ((), True)
    assert known.is_good(name)
    assert cache.stat().st_size < 300


def test_a_list_that_has_grown_too_long_is_begun_anew_also_by_what_it_holds(cache: Path) -> None:
    check(document_of(GOOD), "inventory")
    (name,) = cache.read_text().split()
    os.truncate(cache, 1 << 40)  # with the name at its start, and more than memory holds
    assert not known.is_good(name)
    assert check(document_of(GOOD), "inventory") == ()
    assert cache.read_text().split() == [name]


def test_no_list_of_others_is_believed(cache: Path) -> None:
    cache.parent.mkdir(parents=True)
    cache.parent.chmod(0o777)
    document = document_of("all: 1\n")
    cache.write_text(f"{known.name_of(document.data, 'inventory')}\n")
    assert check(document, "inventory") != ()
