from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from keyword import iskeyword
from pathlib import Path
from typing import NoReturn

import click
import pytest

from beamdeploy import __version__
from beamdeploy.cli import main, options
from beamdeploy.cli.boundary import asked_for_json, guarded
from beamdeploy.cli.table import SECTIONS, names
from beamdeploy.errors import UNREACHABLE, HostError, InputError, Problem

ROWS = [(name, module, line) for rows in SECTIONS.values() for name, (module, line) in rows.items()]

INTERRUPTED = (
    "error: interrupted\n    remedy: What was started on a host goes on there; `beamdeploy status` says what.\n"
)


def beamdeploy(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run((sys.executable, "-m", "beamdeploy", *words), capture_output=True, text=True, check=False)


def raiser(error: BaseException) -> Callable[[], NoReturn]:
    def run() -> NoReturn:
        raise error

    return run


def test_help_lists_every_command_and_imports_none() -> None:
    code = (
        "import sys\nfrom beamdeploy.cli import main\n"
        "try: main(['--help'])\n"
        "finally: print(sorted({'rich', 'yaml', 'fabric', 'jinja2', 'jsonschema'} & set(sys.modules)))"
    )
    done = subprocess.run((sys.executable, "-c", code), capture_output=True, text=True, check=True)
    listed = [line.split()[0] for line in done.stdout.splitlines() if line[:2] == "  " and line[2:3].isalpha()]
    assert [name for name in listed if name in names()] == list(names())
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_version_is_said() -> None:
    done = beamdeploy("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"beamdeploy {__version__}\n", "")


@pytest.mark.parametrize("words", [("aply",), ("--nope",), ("-o", "json", "aply")])
def test_wrong_words_are_bad_input(words: tuple[str, ...]) -> None:
    done = beamdeploy(*words)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)


@pytest.mark.parametrize("seconds", ["nan", "inf", "-1"])
def test_a_wait_without_end_is_no_number_of_seconds(seconds: str) -> None:
    done = beamdeploy("destroy", "beam", "--lock-wait", seconds)
    assert (done.returncode, "--lock-wait" in done.stderr) == (2, True)


@pytest.mark.parametrize("command", [("status", "-w"), ("top",)])
@pytest.mark.parametrize("seconds", ["nan", "inf", "0", "1e300"])
def test_a_pause_is_a_number_of_seconds_that_ends(command: tuple[str, ...], seconds: str) -> None:
    done = beamdeploy(*command, "--interval", seconds)
    assert (done.returncode, "--interval" in done.stderr, "Traceback" in done.stderr) == (2, True, False)


def test_a_slip_in_an_override_is_answered_with_the_key_that_is_set() -> None:
    recipe = str(Path(__file__).parents[1] / "recipes" / "beam-nvfp4-tokenspeed-4xb300.yaml")
    done = beamdeploy("render", recipe, "-i", "a,", "--model-dir", "/m", "-e", "engine.max_num_seq=4")
    assert (done.returncode, "did you mean max_num_seqs?" in done.stderr) == (2, True)


def test_a_limit_that_names_nothing_after_its_mark_says_so() -> None:
    recipe = str(Path(__file__).parents[1] / "recipes" / "beam-nvfp4-tokenspeed-4xb300.yaml")
    done = beamdeploy("render", recipe, "-i", "a,", "--model-dir", "/m", "-l", "!")
    assert (done.returncode, "nothing follows '!'" in done.stderr) == (2, True)


def test_infos_of_a_check_are_counted_and_shown_on_demand() -> None:
    folder = str(Path(__file__).parents[1] / "recipes")
    short, long = beamdeploy("validate", folder), beamdeploy("validate", "-v", folder)
    assert (short.returncode, "info" in short.stdout, "(-v shows the infos)" in short.stderr) == (0, False, True)
    assert (long.returncode, "info" in long.stdout, "-v" in long.stderr) == (0, True, False)


def test_a_warning_of_a_rule_is_in_the_report_where_that_is_json() -> None:
    recipe = str(Path(__file__).parents[1] / "recipes" / "beam-nvfp4-tokenspeed-4xb300.yaml")
    offline = ("-e", 'container.env.HF_HUB_OFFLINE="0"', "-i", "a,", "--model-dir", "/m")
    told = beamdeploy("render", recipe, *offline, "-o", "json")
    assert (told.returncode, told.stderr) == (0, "")
    assert [each["rule"] for each in json.loads(told.stdout)["problems"]] == ["BD410"]
    shown = beamdeploy("render", recipe, *offline)
    assert (shown.returncode, "warning BD410" in shown.stderr) == (0, True)


def test_a_near_miss_is_suggested() -> None:
    assert "Did you mean 'apply'?" in beamdeploy("aply").stderr


def test_wrong_words_are_json_where_json_was_asked_for() -> None:
    done = beamdeploy("aply", "-o", "json")
    problem = {
        "file": None,
        "line": None,
        "col": None,
        "where": "command line",
        "rule": "usage",
        "level": "error",
        "what": "No such command 'aply'. Did you mean 'apply'?",
        "remedy": "",
    }
    assert (done.returncode, done.stderr, json.loads(done.stdout)) == (
        2,
        "",
        {"apiVersion": "beamdeploy/v1", "kind": "CommandReport", "exit": 2, "hosts": {}, "problems": [problem]},
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), False),
        (("apply", "-o", "json"), True),
        (("apply", "-ojson"), True),
        (("apply", "--output=json", "x.yaml"), True),
        (("apply", "--output", "text"), False),
        (("apply", "json", "-o"), False),
    ],
)
def test_json_is_asked_for_in_words(words: tuple[str, ...], said: bool) -> None:
    assert asked_for_json(words) is said


@pytest.mark.parametrize(
    ("error", "exit_code", "said"),
    [
        (InputError([Problem("a"), Problem("b")]), 2, "error: a\nerror: b\n2 errors\n"),
        (
            HostError(Problem("no route", "Look.", "gpu-a"), exit=UNREACHABLE),
            4,
            "gpu-a: error: no route\n    remedy: Look.\n",
        ),
        (
            KeyboardInterrupt(),
            130,
            INTERRUPTED,
        ),
        (
            click.Abort(),
            130,
            INTERRUPTED,
        ),
    ],
)
def test_what_a_command_raises_becomes_text_and_exit_code(
    error: BaseException, exit_code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (guarded(raiser(error), ("apply",)), *capsys.readouterr()) == (exit_code, "", said)


def test_only_a_bug_shows_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded(raiser(KeyError("x\x1b[2J")), ("apply",)) == 70
    said = capsys.readouterr().err
    assert said.startswith("Traceback")
    assert "error: this is a bug in beamdeploy: KeyError:" in said
    assert "\x1b" not in said


def test_what_a_command_returns_is_the_exit_code() -> None:
    assert [guarded(lambda: 10, ()), guarded(lambda: None, ())] == [10, 0]


def test_sigterm_is_as_ctrl_c_and_the_handler_goes_back(capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGTERM)
    assert guarded(lambda: signal.raise_signal(signal.SIGTERM), ("status",)) == 130
    assert signal.getsignal(signal.SIGTERM) == before
    assert capsys.readouterr().err.startswith("error: interrupted\n")


def test_help_to_a_reader_that_goes_away_is_quiet() -> None:
    words = (sys.executable, "-um", "beamdeploy", "--help")
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


@pytest.mark.parametrize("lines", [1, 100_000])
def test_a_reader_that_goes_away_is_no_news(lines: int) -> None:
    code = (
        "from beamdeploy.cli.boundary import guarded\n"
        f"raise SystemExit(guarded(lambda: [print('x' * 99) for _ in range({lines})] and 0, ()))"
    )
    with subprocess.Popen(
        (sys.executable, "-E", "-c", code), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == (0 if lines == 1 else 141)


def test_a_broken_pipe_that_is_not_our_output_is_a_bug(capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded(raiser(BrokenPipeError(32, "a socket")), ()) == 70


def test_shared_options_give_values() -> None:
    got: list[object] = []

    @click.command()
    @options.hosts
    @options.overrides
    @options.output
    @options.verbose
    @options.yes
    def command(**values: object) -> int:
        got.append(values)
        return 0

    words = ["-i", "gpu-a,", "-l", "a", "-e", "a.b=c=d", "--set", "x=", "-o", "json", "-vv", "--gpus", "0,2", "-y"]
    command.main([*words, "--model-dir", "/srv", "--accept-new"], standalone_mode=False)
    where = options.Where(inventory="gpu-a,", limit="a", model_dir="/srv", gpus=(0, 2), accept_new=True)
    overrides = (("a.b", "c=d"), ("x", ""))
    assert got == [{"where": where, "overrides": overrides, "output": "json", "verbose": 2, "yes": True}]


@pytest.mark.parametrize("words", [["-e", "x"], ["-e", "=x"], ["--gpus", "0,0"], ["--gpus", "0-3"], ["--gpus", ""]])
def test_values_of_the_wrong_form_are_refused(words: list[str]) -> None:
    @click.command()
    @options.overrides
    @options.gpus
    def command(**values: object) -> int:
        return 0

    with pytest.raises(click.BadParameter):
        command.main(words, standalone_mode=False)


def test_every_listed_command_is_a_function_of_its_name_and_explains_itself() -> None:
    found = [
        (name, getattr(import_module(f"beamdeploy.cli.{module}"), f"{name}_" if iskeyword(name) else name))
        for name, module, _ in ROWS
        if find_spec(f"beamdeploy.cli.{module}") is not None
    ]
    assert [(command.name, bool(command.help)) for _, command in found] == [(name, True) for name in names()]


def test_main_is_the_entry_of_the_package() -> None:
    assert (main.name, isinstance(main, click.Group)) == ("main", True)


@pytest.mark.parametrize(("redirection", "code"), [(">&-", 1), ("2>&-", 0), ("> /dev/full", 1)])
@pytest.mark.parametrize("words", ["schema lock", "recipes list", "recipes list -o json", "--help", "--version"])
def test_lost_streams_end_without_a_traceback(words: str, redirection: str, code: int) -> None:
    done = subprocess.run(
        ["sh", "-c", f"exec {sys.executable} -m beamdeploy {words} {redirection}"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr
    assert ("the output cannot be written" in done.stderr) is bool(code)


@pytest.mark.parametrize(
    "words", ["destroy ''", "prune ''", "status -i ''", "status -l ''", "plan r.yaml --model-dir ''"]
)
def test_an_empty_word_is_refused_and_never_means_all(words: str) -> None:
    inventory = "" if "-i" in words else "-i root@192.0.2.1,"
    done = subprocess.run(
        ["sh", "-c", f"exec {sys.executable} -m beamdeploy {words} {inventory}"],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, "empty" in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full"])
def test_a_run_goes_on_where_nobody_can_be_told(redirection: str) -> None:
    recipe = Path(__file__).parents[1] / "recipes" / "beam-nvfp4-tokenspeed-4xb300.yaml"
    done = subprocess.run(
        ["sh", "-c", f"exec {sys.executable} -m beamdeploy validate {recipe} {redirection}"],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0
