"""`beamdeploy validate` as a whole: files, folders, standard input, ignores, and what it says."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import jsonschema
import pytest

from beamdeploy.check import check_all
from beamdeploy.check.ignores import Choice
from beamdeploy.outcome import Report
from tests.forked import beamdeploy

ROOT = Path(__file__).parents[1]
RECIPE = (ROOT / "recipes" / "beam-nvfp4-tokenspeed-4xb300.yaml").read_text(encoding="utf-8")
SCHEMA = json.loads((ROOT / "schemas" / "report.schema.json").read_bytes())
UNPINNED = "  reference: lightseekorg/tokenspeed:beam\n"


def validate(*words: str, text: str | None = None, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return beamdeploy("validate", *words, text=text or "", cwd=cwd)


def written(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def with_line(old: str, new: str) -> str:
    assert RECIPE.count(old) == 1
    return RECIPE.replace(old, new)


def told(report: Report) -> list[tuple[int | None, str, str]]:
    return [(each.line, each.rule, each.level) for each in report.problems]


def checked(folder: Path, text: str, choice: Choice | None = None, *, strict: bool = False) -> Report:
    (folder / "recipe.yaml").write_text(text, encoding="utf-8")
    return check_all([str(folder / "recipe.yaml")], choice, strict=strict)


CLEAN = [(12, "BD420", "info"), (19, "BD355", "info"), (48, "BD355", "info")]


def test_shipped_recipes_and_inventories_are_clean_under_strict() -> None:
    done = validate("--strict", "recipes", "inventories")
    assert (done.returncode, " error" in done.stdout, " warning" in done.stdout) == (0, False, False)


def test_problems_are_the_result_and_the_summary_is_not(tmp_path: Path) -> None:
    written(
        tmp_path, {"r/b.yaml": with_line("name: beam\n", "name: 7\n"), "r/a.yaml": RECIPE, "r/c.yaml": "kind: Pod\n"}
    )
    done = validate("r", "--select", "BD9", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (
        2,
        "r/b.yaml:3:7: error BD033: name: text is expected, this is a number: 7\n"
        "    3 | name: 7\n"
        "      |       ^\n"
        '    remedy: quote it: "7"\n',
        "2 files checked (1 of the folder not ours): 1 error\n",
    )


def test_all_files_are_told_in_one_run_by_file_and_line(tmp_path: Path) -> None:
    faulty = RECIPE.replace("count: 4", "count: many").replace("name: beam\n", "nmae: beam\n")
    written(tmp_path, {"b.yaml": faulty, "a/z.yaml": faulty, "a/bad.yaml": "engine: {\nmodel: 1\nimage: 2\n"})
    done = validate("-o", "line", "b.yaml", "a", "b.yaml", cwd=tmp_path)
    places = [tuple(line.split(":")[:2]) for line in done.stdout.splitlines()]
    assert places == sorted(places, key=lambda place: (place[0], int(place[1])))
    assert {place[0] for place in places} == {"a/bad.yaml", "a/z.yaml", "b.yaml"}


@pytest.mark.parametrize("form", ["json", "sarif", "junit", "github", "line"])
def test_other_forms_leave_stderr_empty(form: str) -> None:
    done = validate("-o", form, "recipes")
    assert (done.returncode, done.stderr) == (0, "")


def test_json_holds_to_the_report_schema_and_counts(tmp_path: Path) -> None:
    written(tmp_path, {"a.yaml": RECIPE, "compose.yaml": "services: {}\n"})
    report = json.loads(validate("-o", "json", ".", cwd=tmp_path).stdout)
    jsonschema.validate(report, SCHEMA, cls=jsonschema.Draft202012Validator)
    assert (report["kind"], report["exit"], report["files"], report["skipped"]) == (
        "ValidateReport",
        0,
        ["./a.yaml"],
        1,
    )


@pytest.mark.parametrize("file", ["recipes/beam-nvfp4-tokenspeed-4xb300.yaml", "inventories/example.yaml"])
def test_standard_input_is_read(file: str) -> None:
    done = validate("-", text=(ROOT / file).read_text(encoding="utf-8"))
    assert (done.returncode, done.stderr.startswith("1 file checked: ")) == (0, True)


def test_what_a_name_points_to_must_be_there() -> None:
    done = validate("-o", "line", "recipes/beam-nvfp4-tokenspeed-4xb300.yml")
    assert (done.returncode, done.stdout) == (
        2,
        "recipes/beam-nvfp4-tokenspeed-4xb300.yml:1:1: error BD001: there is no such file\n",
    )


def test_a_named_file_that_is_not_ours_is_an_error(tmp_path: Path) -> None:
    written(tmp_path, {"compose.yaml": "services: {}\n"})
    assert validate("compose.yaml", cwd=tmp_path).returncode == 2


@pytest.mark.parametrize(
    "text",
    [
        "services:\n  a:\n    image: x\n",
        "apiVersion: v1\nkind: Pod\n---\napiVersion: v1\nkind: Pod\n",
        "- hosts: all\n  tasks: []\n",
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}\n",
        "name: ci\non: push\njobs: {}\n",
    ],
)
def test_files_of_others_in_a_folder_are_counted_only(tmp_path: Path, text: str) -> None:
    written(tmp_path, {"x.yaml": text, "r.yml": RECIPE})
    assert check_all([str(tmp_path)]).details == {"files": [str(tmp_path / "r.yml")], "skipped": 1}


@pytest.mark.parametrize("files", [{}, {"compose.yaml": "services: {}\n"}])
def test_a_folder_without_any_of_ours_is_an_error(tmp_path: Path, files: dict[str, str]) -> None:
    written(tmp_path, {"sub/r.yml": RECIPE, **{f"none/{name}": text for name, text in files.items()}})
    (tmp_path / "none").mkdir(exist_ok=True)
    report = check_all([str(tmp_path), str(tmp_path / "sub"), f"{tmp_path}/none/"])
    assert report.exit == 2
    assert [each.file for each in report.problems if "no recipe or inventory" in each.what] == [f"{tmp_path}/none/"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "apiVersion: beamdeploy/v9\n",
        "engine: {name: vllm}\nmodel: {}\n",
        "engine:\n  name: {{ x }}\nmodel: 1\n",
        "all:\n  hosts:\n    a: [\n",
        "web:\n  hosts: {a: }\n  vars: 1\n",
        "# beamdeploy recipe\n\tname: x\n",
    ],
)
def test_what_may_be_ours_in_a_folder_is_checked(tmp_path: Path, text: str) -> None:
    written(tmp_path, {"x.yaml": text})
    report = check_all([str(tmp_path)])
    assert (report.exit, report.details["skipped"]) == (2, 0)


def test_a_folder_is_walked_without_hidden_files_links_to_folders_and_pipes(tmp_path: Path) -> None:
    written(tmp_path, {".git/a.yaml": "x", ".b.yaml": "x", "sub/r.yml": RECIPE, "notes.txt": "x"})
    (tmp_path / "loop").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "pipe.yaml")
    assert check_all([str(tmp_path)]).details == {"files": [str(tmp_path / "sub" / "r.yml")], "skipped": 0}


def test_a_link_that_leads_in_a_circle_is_told_beside_the_others(tmp_path: Path) -> None:
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")
    (tmp_path / "r.yaml").write_text("apiVersion: beamdeploy/v1\n", encoding="utf-8")
    report = check_all([str(tmp_path)])
    files = [str(tmp_path / "loop.yaml"), str(tmp_path / "r.yaml")]
    assert (report.exit, report.details) == (2, {"files": files, "skipped": 0})
    assert report.problems[0].what == f"cannot be read: {os.strerror(errno.ELOOP)}"


def test_strict_makes_warnings_errors(tmp_path: Path) -> None:
    text = with_line("name: beam\n", "name: beam # beamdeploy: ignore\n")
    assert (checked(tmp_path, text).exit, checked(tmp_path, text, strict=True).exit) == (0, 2)
    assert told(checked(tmp_path, text, strict=True)) == [(3, "BD072", "error"), *CLEAN]


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (Choice(), CLEAN),
        (Choice(select=("BD3",)), CLEAN[1:]),
        (Choice(ignore=("BD355",)), CLEAN[:1]),
        (Choice(select=("BD4", "BD355"), ignore=("BD42",)), CLEAN[1:]),
        (Choice(ignore=("BD3", "BD4")), []),
    ],
)
def test_rules_are_selected_by_prefix(tmp_path: Path, choice: Choice, expected: list[tuple[int, str, str]]) -> None:
    assert told(checked(tmp_path, RECIPE, choice)) == expected


def test_what_makes_a_file_undeployable_is_told_whatever_is_selected(tmp_path: Path) -> None:
    text = with_line("name: beam\n", "name: 7\n")
    assert told(checked(tmp_path, text, Choice(("BD9",), ("BD0",)))) == [(3, "BD033", "error")]


@pytest.mark.parametrize(
    "words", [("--select", "301"), ("--ignore", "BD"), ("--ignore", "BD3,x"), ("--select", "BD3011")]
)
def test_a_selection_that_is_no_rule_is_refused(words: tuple[str, str]) -> None:
    done = validate(*words, "recipes")
    assert (done.returncode, "is not the id of a rule" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (RECIPE.replace(UNPINNED, f"{UNPINNED[:-1]}   # beamdeploy: ignore BD420 we test it\n"), CLEAN[1:]),
        (
            RECIPE.replace(UNPINNED, f"  # beamdeploy: ignore BD420\n\n  # more\n{UNPINNED}"),
            [(22, "BD355", "info"), (51, "BD355", "info")],
        ),
        (f"# beamdeploy: ignore-file BD355, BD420\n{RECIPE}", []),
        (f"# beamdeploy: ignore-file BD355 BD420\n{RECIPE}", []),
    ],
)
def test_a_comment_ignores_a_rule_at_its_line_below_it_or_in_the_file(
    tmp_path: Path, text: str, expected: list[tuple[int, str, str]]
) -> None:
    assert told(checked(tmp_path, text)) == expected


@pytest.mark.parametrize(
    ("comment", "rule", "level"),
    [
        ("# beamdeploy: ignore BD301", "BD070", "info"),
        ("# beamdeploy: ignore BD033", "BD071", "info"),
        ("# beamdeploy: ignore BD3", "BD072", "warning"),
        ("# beamdeploy: ignore", "BD072", "warning"),
        ("# beamdeploy: ignore-file BD355", "BD073", "warning"),
    ],
)
def test_a_comment_that_does_nothing_is_told(tmp_path: Path, comment: str, rule: str, level: str) -> None:
    assert told(checked(tmp_path, with_line("name: beam\n", f"name: beam {comment}\n")))[:1] == [(3, rule, level)]


def test_what_apply_refuses_anyway_cannot_be_ignored(tmp_path: Path) -> None:
    text = with_line("name: beam\n", "name: 7 # beamdeploy: ignore BD033, BD420\n")
    assert told(checked(tmp_path, text)) == [(3, "BD033", "error"), (3, "BD071", "info")]


def test_a_text_that_looks_like_a_comment_is_none(tmp_path: Path) -> None:
    line = next(line for line in RECIPE.splitlines(keepends=True) if line.startswith("description:"))
    folded = "description: >-\n  a\n  # beamdeploy: ignore BD301\n"
    assert [rule for _, rule, _ in told(checked(tmp_path, RECIPE.replace(line, folded)))] == ["BD420", "BD355", "BD355"]
    quoted = 'description: "x # beamdeploy: ignore BD301"\n'
    assert told(checked(tmp_path, RECIPE.replace(line, quoted))) == CLEAN
