"""Group E: what people write into YAML files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cases.intent import DATA, load, table
from tests.cases.recorder import PWNED, SHELLS, recorded, sent
from tests.integration.command import Job, Ran, beamdeploy
from tests.lab import LabHost


def with_text(text: str, at: str) -> str:
    """The base recipe with this YAML text in a section ("": at the top), in place of the keys that it gives."""
    recipe = load().recipe
    key = text.partition(":")[0]
    section = recipe.pop(at) if at else {}
    recipe.pop(key, None)
    section.pop(key, None)
    if not at:
        return yaml.safe_dump(recipe) + text
    inside = yaml.safe_dump(section) + text
    return yaml.safe_dump(recipe) + f"{at}:\n" + "".join(f"  {line}\n" for line in inside.splitlines())


def rendered(text: str, folder: Path, *words: str) -> Ran:
    """`beamdeploy render` of a recipe with this text."""
    file = folder / "recipe.yaml"
    file.write_text(text, encoding="utf-8")
    return beamdeploy("render", str(file), "--model-dir", "/srv/models/beam", "-o", "json", *words)


def faults(ran: Ran) -> list[dict[str, Any]]:
    """The problems of a run that refused its input."""
    assert (ran.exit, ran.report["hosts"]) == (2, {})
    return [problem for problem in ran.report["problems"] if problem["level"] == "error"]


def the_fault(ran: Ran, word: str, text: str) -> str:
    """What the only problem says; its line is the one that holds `word`."""
    [problem] = faults(ran)
    lines = [at for at, line in enumerate(text.splitlines(), 1) if word in line]
    assert problem["line"] in lines and problem["col"]
    return f"{problem['what']} {problem['remedy']}"


PORTS = table("E01")


@pytest.mark.parametrize(("row", "number"), [("b", "133342"), ("c", "480059"), ("e", "484830")])
def test_e01_a_base_60_port_is_told_with_its_number_and_to_be_quoted(tmp_path: Path, row: str, number: str) -> None:
    text = with_text(PORTS[row]["text"], PORTS[row]["at"])
    base60 = [each for each in faults(rendered(text, tmp_path)) if each["rule"] == "BD020"]
    assert [text.splitlines()[each["line"] - 1].split()[-1] for each in base60] == [PORTS[row]["text"].split()[-1]]
    assert number in base60[0]["what"] and "quote it" in base60[0]["remedy"]


@pytest.mark.parametrize("row", ["a", "d", "f"])
def test_e01_a_port_that_is_text_must_be_an_address_and_a_port(tmp_path: Path, row: str) -> None:
    text = with_text(PORTS[row]["text"], PORTS[row]["at"])
    said = the_fault(rendered(text, tmp_path), "publish", text)
    assert "ADDRESS:PORT" in said and "container.publish" in said


def test_e01_a_whole_number_is_never_text(tmp_path: Path) -> None:
    for row in ("g", "j"):
        text = with_text(PORTS[row]["text"], PORTS[row]["at"])
        said = the_fault(rendered(text, tmp_path), "chunked_prefill_size", text)
        assert "a whole number is expected, this is text" in said


def test_e01_a_leading_zero_means_octal(tmp_path: Path) -> None:
    text = with_text(PORTS["h"]["text"], PORTS["h"]["at"])
    said = the_fault(rendered(text, tmp_path), "017500", text)
    assert "octal" in said and "8000" in said


def test_e01_underscores_are_refused(tmp_path: Path) -> None:
    text = with_text(PORTS["i"]["text"], PORTS["i"]["at"])
    assert "8_000" in the_fault(rendered(text, tmp_path), "8_000", text)


def written_twice(file: Path, tmp_path: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The same faults by `validate` and by `render`."""
    validated, shown = beamdeploy("validate", str(file), "-o", "json"), rendered(file.read_text(), tmp_path)
    return faults(validated), faults(shown)


def test_e02_unquoted_words_and_keys_are_told_in_one_run(tmp_path: Path) -> None:
    section, _, keys = (DATA / "E02" / "recipe.yaml").read_text(encoding="utf-8").partition("on: ")
    file = tmp_path / "whole.yaml"
    file.write_text(with_text(section, "container") + "on: " + keys, encoding="utf-8")
    lines = file.read_text(encoding="utf-8").splitlines()
    for found in written_twice(file, tmp_path):
        said = {lines[each["line"] - 1].split(":")[0].strip(): f"{each['what']} {each['remedy']}" for each in found}
        assert len(said) == len(found)
        assert set(said) == {
            *("NCCL_P2P_DISABLE", "COUNTRY", "FEATURE", "DEBUG", "HF_HUB_OFFLINE", "RATIO", "NOTHING", "TILDE"),
            *("on", "8000"),
        }  # LETTER: y and OK: "no" are text
        for name, word, read in (
            ("NCCL_P2P_DISABLE", "yes", "true"), ("COUNTRY", "no", "false"),
            ("FEATURE", "on", "true"), ("DEBUG", "off", "false"),
        ):  # fmt: skip
            assert f"container.env.{name}: {word} is read as {read}" in said[name] and f'"{word}"' in said[name]
        assert "container.env.HF_HUB_OFFLINE: text is expected, this is a number: 1" in said["HF_HUB_OFFLINE"]
        assert '"1.10"' in said["RATIO"] and "1.10 is read as 1.1" in said["RATIO"]
        for name in ("NOTHING", "TILDE"):
            assert f"container.env.{name} is empty (null)" in said[name]
        assert all("not text" in said[key] for key in ("on", "8000"))


def test_e02_every_whole_number_in_the_environment_is_refused_alike(tmp_path: Path) -> None:
    found = faults(rendered(with_text("env: {A: 0, B: 1, C: -7}\n", "container"), tmp_path))
    assert [each["what"] for each in found] == [
        f"container.env.{name}: text is expected, this is a number: {value}"
        for name, value in (("A", 0), ("B", 1), ("C", -7))
    ]


@pytest.mark.parametrize(("file", "path", "lines"), [("recipe", "engine", (2, 7)), ("nested", "env.A", (2, 4))])
def test_e04_a_key_that_is_written_twice_is_refused(
    tmp_path: Path, file: str, path: str, lines: tuple[int, int]
) -> None:
    for found in written_twice(DATA / "E04" / f"{file}.yaml", tmp_path):
        [twice] = [each for each in found if "twice" in each["what"]]
        key = path.rpartition(".")[2]
        assert twice["what"] == f"the key {key} is written twice: {path} on lines {lines[0]} and {lines[1]}"
        assert twice["line"] == lines[1]


def test_e06_each_emptied_section_is_told_as_empty(tmp_path: Path) -> None:
    for found in written_twice(DATA / "E06" / "recipe.yaml", tmp_path):
        assert [(each["line"], each["what"]) for each in found] == [
            (line, f"{path} is empty (null): remove the key or give a value")
            for line, path in (
                (8, "engine.tensor_parallel"), (10, "parsers.tool_call"), (11, "speculative"), (16, "container.env"),
            )
        ]  # fmt: skip


def test_e06_no_gpus_in_the_inventory_is_not_all_of_them(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(load().recipe), encoding="utf-8")
    hosts = str(DATA / "E06" / "hosts.yaml")
    for command in ("render", "plan"):
        ran = beamdeploy(command, str(tmp_path / "recipe.yaml"), "-i", hosts, "-o", "json")
        [problem] = faults(ran)
        assert (problem["file"], problem["line"]) == (hosts, 5)
        assert "gpus" in problem["what"]


def test_e06_what_is_absent_and_optional_is_no_fault(tmp_path: Path) -> None:
    for found in written_twice(DATA / "E06" / "absent.yaml", tmp_path):
        assert sorted(each["what"] for each in found) == [
            f"{path} is missing" for path in ("apiVersion", "container", "engine.name", "hardware", "image", "model")
        ]


def test_e06_no_none_reaches_the_words(tmp_path: Path) -> None:
    recipe = load().recipe
    needed = {key: recipe[key] for key in ("apiVersion", "name", "hardware", "image", "model")}
    least = {
        **needed,
        "engine": {"name": "tokenspeed", "catalog": "beam", "tensor_parallel": 4},
        "container": {"publish": "127.0.0.1:8000"},
    }
    words = rendered(yaml.safe_dump(least), tmp_path).host("-")["words"]
    assert not [word for word in words if "none" in word.lower() or "null" in word.lower()]


HINTS = {
    "tab": (3, 1, "blanks"),
    "two-docs": (2, 1, "one document a file"),
    "empty": (1, 1, "mapping"),
    "comment-only": (1, 1, "mapping"),
    "scalar": (1, 1, "mapping"),
    "list": (1, 1, "mapping"),
    "colon": (2, 12, "quote the value"),
    "percent": (1, 7, "quote the value"),
    "template": (1, 8, "quote it"),
    "unclosed": (1, 7, "close"),
}


def test_e09_every_malformed_file_of_one_command_line_is_told_with_its_place_and_a_hint() -> None:
    names = {name: str(DATA / "E09" / f"{name}.yaml") for name in HINTS}
    ran = beamdeploy("validate", *names.values(), "-o", "json")
    found = faults(ran)
    for name, (line, col, hint) in HINTS.items():
        # what could be read of a file is checked further: YAML's own faults are those below BD030
        [problem] = [each for each in found if each["file"] == names[name] and each["rule"] < "BD030"]
        assert (problem["line"], problem["col"]) == (line, col), problem
        assert hint in f"{problem['what']} {problem['remedy']}", problem
    shown = beamdeploy("validate", *names.values())
    assert shown.exit == 2
    assert all(f"{names[name]}:{line}:{col}: error" in shown.out for name, (line, col, _) in HINTS.items())


HOSTILE = table("E11")
REFUSED = {
    **dict.fromkeys(("name-semicolon", "name-dash", "name-mount"), "a container name"),
    **dict.fromkeys(("image-dash", "image-subst", "upper-image"), "an image reference"),
    "served-dash": "does not begin with '-'",
    **dict.fromkeys(("weights-newline", "mount-inject"), "model_dir"),
    **dict.fromkeys(("env-key", "env-key-eq"), "a variable's name"),
}
ACCEPTED = {
    "served-name": ("--served-model-name", "Beam $(touch /tmp/beamdeploy-pwned)"),
    "template-value": (
        "--served-model-name",
        '{{ cycler.__init__.__globals__.os.popen("touch /tmp/beamdeploy-pwned").read() }}',
    ),
    "name-ok": ("--name", "beam_1.prod-a"),
}


def hostile(row: str, folder: Path, output: str = "json") -> Ran:
    """`beamdeploy render` of a row."""
    given = HOSTILE[row]
    text = with_text(given["text"], given["at"]) if "text" in given else yaml.safe_dump(load().recipe)
    (folder / "recipe.yaml").write_text(text, encoding="utf-8")
    hosts = {"gpu-a": {"model_dir": given.get("model_dir", "/srv/models/beam")}}
    (folder / "hosts.yaml").write_text(json.dumps({"all": {"hosts": hosts}}), encoding="utf-8")
    return beamdeploy("render", str(folder / "recipe.yaml"), "-i", str(folder / "hosts.yaml"), "-o", output)


def test_e11_every_row_has_its_verdict() -> None:
    assert set(HOSTILE) == {*REFUSED, *ACCEPTED}


@pytest.mark.parametrize("row", REFUSED)
def test_e11_a_value_that_is_shell_text_or_an_option_is_refused_at_its_line(tmp_path: Path, row: str) -> None:
    [problem] = faults(hostile(row, tmp_path))
    assert REFUSED[row] in problem["what"]
    assert problem["line"] and problem["col"]
    assert not PWNED.exists()


@pytest.mark.parametrize("row", ACCEPTED)
def test_e11_an_accepted_value_is_one_argument_and_changes_no_other(tmp_path: Path, row: str) -> None:
    (tmp_path / "plain").mkdir()
    plain = hostile("name-ok", tmp_path / "plain").host("gpu-a")["words"]
    words = hostile(row, tmp_path).host("gpu-a")["words"]
    option, value = ACCEPTED[row]
    assert words[words.index(option) + 1] == value
    base = ACCEPTED["name-ok"][1]
    same = [word for word in words if not word.startswith("beamdeploy.")]
    without = [word for word in plain if not word.startswith("beamdeploy.")]
    differing = {(new, old) for new, old in zip(same, without, strict=True) if new != old}
    own = {(value, without[without.index(option) + 1])} if row != "name-ok" else set()
    assert differing == own | ({("beam", base)} if row != "name-ok" else set())
    for shell in SHELLS:
        assert list(sent(shell, words, tmp_path / shell)) == words


@pytest.mark.parametrize("row", ACCEPTED)
def test_e11_what_render_prints_can_be_pasted(tmp_path: Path, row: str) -> None:
    words = hostile(row, tmp_path).host("gpu-a")["words"]
    printed = hostile(row, tmp_path, "text").out
    for shell in ("dash", "bash"):
        assert list(recorded(shell, printed, tmp_path / shell)) == words


@pytest.mark.parametrize(
    ("row", "line", "name"), [("variable", 4, "nmae"), ("condition", 5, "kvstoer"), ("optional", 4, "drafter")]
)
def test_e12_a_name_that_a_template_invents_is_told_and_no_host_is_asked(
    job: Job, clean_host: LabHost, row: str, line: int, name: str
) -> None:
    if row == "optional":
        recipe = yaml.safe_load(Path(job.recipe).read_text(encoding="utf-8"))
        del recipe["speculative"]
        Path(job.recipe).write_text(yaml.safe_dump(recipe), encoding="utf-8")
    log = clean_host.folder / "sshd.log"
    before = log.stat().st_size
    template = DATA / "E12" / row
    for command in ("render", "plan", "apply"):
        [problem] = faults(job.run(command, "--templates", str(template)))
        assert (problem["file"], problem["line"]) == (str(template / "docker-run.j2"), line)
        assert name in problem["what"]
    assert log.stat().st_size == before
    assert "docker" not in job.run("render", "--templates", str(template), output="text").out


def test_e12_without_speculation_our_own_templates_leave_no_empty_argument(job: Job, name: str) -> None:
    recipe = yaml.safe_load(Path(job.recipe).read_text(encoding="utf-8"))
    del recipe["speculative"]
    Path(job.recipe).write_text(yaml.safe_dump(recipe), encoding="utf-8")
    words = job.run("render").host(name)["words"]
    assert "" not in words and not [word for word in words if "speculative" in word or "drafter" in word]
