from __future__ import annotations

import io
import json
import threading
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beamdeploy.errors import BLOCKED, DONE, FAILED, UNREACHABLE, Problem
from beamdeploy.outcome import HostReport, PlanLine, Report
from beamdeploy.report import Progress, clean, clean_line, show, show_lines, show_problems
from beamdeploy.report.as_json import document, dumps
from beamdeploy.report.past import entry_lines
from beamdeploy.report.text import (
    diff_lines,
    host_lines,
    plain,
    plan_lines,
    problem_lines,
    problems_lines,
    report_lines,
    table_lines,
)

SCHEMA = json.loads((Path(__file__).parents[1] / "schemas" / "report.schema.json").read_text(encoding="utf-8"))

GPU_TAKEN = Problem("GPU 0 is in use by pid 4711", "Stop it, or name other GPUs.", "gpu-b: look", rule="BD201")
REPORT = Report(
    "Apply",
    BLOCKED,
    (
        HostReport("gpu-a", "changed", DONE, "ready after 4:12", {"container": "3f2a", "seconds": 252.5}),
        HostReport("gpu-b", "blocked", BLOCKED, "", {}, (GPU_TAKEN, Problem("the driver is old"))),
    ),
    (Problem("no digest", "Say --unpinned.", "", "recipe.yaml", 7, 14, "BD031", "warning"),),
)


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_report_is_one_json_object() -> None:
    assert document(REPORT) == {
        "apiVersion": "beamdeploy/v1",
        "kind": "ApplyReport",
        "exit": 3,
        "hosts": {
            "gpu-a": {
                "outcome": "changed",
                "exit": 0,
                "summary": "ready after 4:12",
                "container": "3f2a",
                "seconds": 252.5,
            },
            "gpu-b": {"outcome": "blocked", "exit": 3, "summary": ""},
        },
        "problems": [
            {
                "file": "recipe.yaml",
                "line": 7,
                "col": 14,
                "where": "",
                "rule": "BD031",
                "level": "warning",
                "what": "no digest",
                "remedy": "Say --unpinned.",
            },
            {
                "file": None,
                "line": None,
                "col": None,
                "where": "gpu-b: look",
                "rule": "BD201",
                "level": "error",
                "what": "GPU 0 is in use by pid 4711",
                "remedy": "Stop it, or name other GPUs.",
            },
            {
                "file": None,
                "line": None,
                "col": None,
                "where": "gpu-b",
                "rule": "",
                "level": "error",
                "what": "the driver is old",
                "remedy": "",
            },
        ],
    }


@pytest.mark.parametrize("report", [REPORT, Report("Validate", 2), Report("Schema", 0, details={"schema": {}})])
def test_every_report_is_valid_under_the_shipped_schema(report: Report) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(json.loads(dumps(report)), SCHEMA, cls=jsonschema.Draft202012Validator)


def test_what_a_command_adds_cannot_hide_what_every_report_has() -> None:
    assert document(Report("Plan", 10, details={"exit": 0, "steps": 2})) == {
        "steps": 2,
        "apiVersion": "beamdeploy/v1",
        "kind": "PlanReport",
        "exit": 10,
        "hosts": {},
        "problems": [],
    }


def test_json_is_ascii_whatever_a_server_said() -> None:
    assert dumps(Report("Logs", 0, details={"line": "\x1b[2J é \udc80"})).isascii()


def test_a_problem_shows_its_place_in_the_source() -> None:
    problem = Problem("tensor_parallel is 8", "Say 4.", file="beam.yaml", line=2, col=20, rule="BD031")
    assert plain(problem_lines(problem, "engine:\n  tensor_parallel: 8\n")) == (
        "beam.yaml:2:20: error BD031: tensor_parallel is 8\n"
        "    2 |   tensor_parallel: 8\n"
        "      |                    ^\n"
        "    remedy: Say 4.\n"
    )


def test_the_caret_stands_below_what_it_means_after_wide_and_tab_characters() -> None:
    problem = Problem("no", file="beam.yaml", line=1, col=6)
    assert plain(problem_lines(problem, "日本\té: x")).splitlines()[1:] == ["    1 | 日本 é: x", "      |        ^"]


def test_a_long_line_is_shown_around_the_place() -> None:
    problem = Problem("no", file="beam.yaml", line=1, col=501)
    head, code, caret = plain(problem_lines(problem, "a" * 500 + "!" + "b" * 500, width=60)).splitlines()
    assert (head, len(code), code[caret.index("^")]) == ("beam.yaml:1:501: error: no", 60, "!")


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("    HF_TOKEN: hf_abcdefghijkl", "    HF_TOKEN: …"),
        ("  run: use hf_abcdefghijkl now", "  run: use hf_… now"),
        ("ansible_password: hunter2", "ansible_password: …"),
        ("api_key: 'x', other: 2", "api_key: …, other: 2"),
        ("  max_tokens: 2048", "  max_tokens: 2048"),
        ("  secrets: {HF_TOKEN: {env: HF_TOKEN}}", "  secrets: {HF_TOKEN: {env: HF_TOKEN}}"),
    ],
)
def test_an_excerpt_repeats_no_secret(line: str, shown: str) -> None:
    assert plain(problem_lines(Problem("x", file="f", line=1), line)).splitlines()[1] == f"    1 | {shown}"


def test_a_source_is_read_when_it_can_be(tmp_path: Path) -> None:
    recipe = tmp_path / "r.yaml"
    recipe.write_text("name: Beam\n")
    there, gone = (Problem("x", file=str(path), line=1, col=7) for path in (recipe, tmp_path / "gone.yaml"))
    assert [len(problem_lines(problem)) for problem in (there, gone)] == [3, 1]


def test_a_line_beyond_the_source_shows_no_excerpt() -> None:
    assert len(problem_lines(Problem("x", file="f", line=9, col=1), "one line")) == 1


def test_several_problems_are_counted() -> None:
    problems = (Problem("one", where="gpu-a"), Problem("two", level="warning"), Problem("three"))
    assert plain(problems_lines(problems)) == ("gpu-a: error: one\nwarning: two\nerror: three\n2 errors, 1 warning\n")


def test_the_recap_has_a_row_a_host() -> None:
    assert plain(host_lines(REPORT.hosts)) == "gpu-a  changed      ready after 4:12\ngpu-b  blocked (3)\n"


def test_a_plan_says_step_reason_and_cost() -> None:
    steps = (PlanLine("+", "pull image", "absent", "21 GB"), PlanLine("-", "stop 3f2a", "tensor_parallel differs"))
    assert plain((*plan_lines("gpu-a", steps), *plan_lines("gpu-b", ()))) == (
        "gpu-a:\n"
        "  + pull image  absent                   21 GB\n"
        "  - stop 3f2a   tensor_parallel differs\n"
        "gpu-b: nothing to do\n"
    )


def test_a_report_shows_plans_before_the_recap() -> None:
    planned = HostReport("gpu-a", "changed", DONE, plan=(PlanLine("+", "run beam", "absent"),))
    hosts = (planned, HostReport("gpu-b", "unchanged", DONE, plan=()), HostReport("gpu-c", "unreachable", UNREACHABLE))
    assert plain(report_lines(Report("Apply", UNREACHABLE, hosts))) == (
        "gpu-a:\n  + run beam  absent\ngpu-b: nothing to do\ngpu-a  changed\ngpu-b  unchanged\ngpu-c  unreachable (4)\n"
    )


def test_a_diff_shows_what_goes_and_what_comes() -> None:
    lines = diff_lines(("a: 1", "b: 2"), ("a: 1", "b: 3"), ("on gpu-a", "beam.yaml"))
    assert plain(lines) == "--- on gpu-a\n+++ beam.yaml\n@@ -1,2 +1,2 @@\n a: 1\n-b: 2\n+b: 3\n"


def test_a_diff_keeps_the_indentation() -> None:
    lines = diff_lines(("a:", "  b: 1"), ("a:", "  b: 2"), ("before", "after"))
    assert plain(lines) == "--- before\n+++ after\n@@ -1,2 +1,2 @@\n a:\n-  b: 1\n+  b: 2\n"


ENTRY = {
    "number": 2, "at": "2026-11-30T10:00:00+00:00", "by": "ann@desk", "action": "apply", "name": "beam",
    "outcome": "failed", "seconds": 12.5, "digest": "sha256:1f", "image": "beam@sha256:2e", "ids": [],
    "words": ["docker"], "recipe": {"name": "beam"}, "container": None, "completion": "",
    "error": "it ended\nexit code 1",
    "settings": {"engine.max_num_seqs": 4, "image": "beam"},
    "decided": {"context": 8192, "max_input": None, "memory": []},
    "plan": {
        "changes": [{"path": "engine.seed", "old": None, "new": 4}], "steps": [{"kind": "run", "reason": "they differ"}]
    },
    "phases": {"weights": 3.0}, "past": None,
}  # fmt: skip


def test_an_entry_of_the_history_is_told_in_words() -> None:
    assert (
        plain(entry_lines("gpu-a", ENTRY, ("docker", "run", "--name", "beam", "an image")))
        == """\
gpu-a: entry 2, beam
  at       2026-11-30T10:00:00+00:00
  by       ann@desk
  action   apply
  outcome  failed
  seconds  12.5
  digest   sha256:1f
  image    beam@sha256:2e
  error    it ended
           exit code 1
  changed
    engine.seed  not set → 4
  steps
    run  they differ
  phases
    weights  after 3 s
  the engine decided
    context  8192
  settings
    engine.max_num_seqs  4
    image                beam
  command
    docker run \\
      --name beam 'an image'
"""
    )


def test_a_table_is_aligned_by_terminal_columns() -> None:
    assert plain(table_lines(("NAME", "STATE"), (("日本", "ready"), ("a", "")))) == "NAME  STATE\n日本  ready\na\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x9b31mred", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]52;c;Zm9v\x1b\\text", "text"),
        ("\x1bP1$r\x9ctext", "text"),
        ("\x1b]0;never ended", "0;never ended"),
        ("\x1b\x1b[31mred", "red"),
        ("\x1b(Btext\x1bc", "text"),
        ("10%\r20%\r\nend", "10%\n20%\nend"),
        ("a\tb\x00\x07\x08\x7f\x85c", "a\tbc"),
        ("user\u202etxt.exe", "usertxt.exe"),
        ("bytes \udcff", "bytes "),
        ("日本 é [red]x[/red]", "日本 é [red]x[/red]"),
    ],
)
def test_clean_leaves_nothing_that_a_terminal_obeys(text: str, shown: str) -> None:
    assert clean(text) == shown


@given(st.text(st.characters(codec=None)))
def test_clean_text_holds_no_control_character_but_newline_and_tab(text: str) -> None:
    assert not {c for c in clean(text) if ord(c) < 32 or 127 <= ord(c) < 160} - {"\n", "\t"}
    assert clean(clean(text)) == clean(text)
    assert len(clean_line(text).splitlines()) <= 1


def test_markup_in_foreign_text_is_only_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = Terminal()
    show_lines(problem_lines(Problem("[bold]x[/bold] :smile: \x1b[2J")), stream)
    assert stream.getvalue() == "\x1b[1;31merror: \x1b[0m[bold]x[/bold] :smile: \n"


@pytest.mark.parametrize("variable", [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_a_terminal_that_wants_no_colour_gets_none(monkeypatch: pytest.MonkeyPatch, variable: tuple[str, str]) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv(*variable)
    stream = Terminal()
    show_lines(problem_lines(Problem("x")), stream)
    assert stream.getvalue() == "error: x\n"


def test_what_an_encoding_lacks_is_replaced() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    show_lines(problem_lines(Problem("日本 …")), stream)
    assert raw.getvalue() == b"error: ?? ?\n"


def test_results_go_to_stdout_and_problems_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    exit_code = show(Report("Apply", FAILED, (HostReport("a", "failed", FAILED),), (Problem("x"),)))
    assert (exit_code, *capsys.readouterr()) == (1, "a  failed (1)\n", "error: x\n")


def test_json_leaves_stderr_empty(capsys: pytest.CaptureFixture[str]) -> None:
    assert show(REPORT, "json") == BLOCKED
    captured = capsys.readouterr()
    assert (json.loads(captured.out), captured.err) == (document(REPORT), "")


def test_no_problems_print_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    show_problems(())
    assert capsys.readouterr() == ("", "")


def test_plain_progress_says_each_thing_once() -> None:
    stream = io.StringIO()
    with Progress(stream) as progress:
        progress.event("gpu-a", "pull", "3/7 layers")
        progress.event("gpu-a", "pull", "3/7 layers")
        progress.event("gpu-b", "look")
        progress.event("gpu-a", "pull", "4/7\x1b[2J layers\r\n")
        progress.note("gpu-b", "log\nline")
    assert stream.getvalue() == ("gpu-a: pull: 3/7 layers\ngpu-b: look\ngpu-a: pull: 4/7 layers\ngpu-b: log line\n")


def test_what_moves_within_a_phase_is_no_new_plain_line() -> None:
    stream = io.StringIO()
    with Progress(stream) as progress:
        for detail in (
            "container\t",
            "weights\t 1/4 (25 %)",
            "weights\t 2/4 (50 %), slow",
            "graphs\t\x1b[2J, 9 s left",
        ):
            progress.event("gpu-a", "loading", detail)
    assert stream.getvalue() == (
        "gpu-a: loading: container\ngpu-a: loading: weights 1/4 (25 %)\ngpu-a: loading: graphs, 9 s left\n"
    )


def test_threads_never_mix_within_a_line() -> None:
    stream = io.StringIO()
    with Progress(stream) as progress:

        def work(host: str) -> None:
            for number in range(200):
                progress.event(host, "pull", f"{number}/200")

        threads = [threading.Thread(target=work, args=(f"gpu-{name}",)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    expected = sorted(f"gpu-{name}: pull: {number}/200" for name in "abcd" for number in range(200))
    assert sorted(stream.getvalue().splitlines()) == expected


def test_a_terminal_gets_a_live_line_a_host_and_keeps_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = Terminal()
    with Progress(stream) as progress:
        progress.event("gpu-a", "load", "[1/3] shards")
        progress.note("gpu-a", "a [red]line[/red]")
        progress.event("gpu-a", "ready")
    progress.event("gpu-a", "smoke")
    shown = clean(stream.getvalue())
    assert [text in shown for text in ("[1/3] shards", "gpu-a: a [red]line[/red]", "0:00  ready")] == [True] * 3
    assert stream.getvalue().endswith("gpu-a: smoke\n")
