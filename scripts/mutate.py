#!/usr/bin/env python3
"""Put single random faults into the shipped recipes and measure how many `validate` reports at the line of the fault.

    scripts/mutate.py [--faults 500] [--seed 1]

A fault counts as reported when the faulty file has an error or warning that the untouched one has not, at the line that
was changed; for a key that was taken away, at its section. Prints the share of each kind of fault and every miss; ends
with 1 below the bar of 95 %. The same seed gives the same faults.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from beamdeploy import documents
from beamdeploy.check import check_file
from beamdeploy.documents import Document, Place, dotted
from beamdeploy.schema import load_schema

ROOT = Path(__file__).parents[1]
BAR = 0.95


@dataclass(frozen=True)
class Fault:
    """A changed text; `line` is where the fault stands, `what` says it."""

    text: str
    line: int
    what: str


@dataclass(frozen=True)
class Result:
    kind: str
    recipe: str
    fault: Fault
    lines: tuple[int, ...]
    """Where something new is reported."""

    @property
    def hit(self) -> bool:
        return self.fault.line in self.lines


Kind = Callable[[Document, random.Random], Fault | None]

FREE_KEYS = ("env", "chat_template_kwargs", "args")
"""What is named below these, a recipe cannot know all names of; a misspelling there is no fault that can be seen."""

UNITS: Mapping[str, Sequence[str]] = {
    "container.shm_size": ("64gigs", "64 g", "64x", "64.5.1g", "g64"),
    "container.stop_timeout": ("70s", "1m", '"70"', "70000ms"),
    "ready.timeout": ("45min", "45", "45d", "0.75h", "45 m"),
    "ready.stall": ("10min", "10", "600000ms", "ten minutes"),
    "engine.max_model_len": ("128k", "131_072", "128Ki", "131072 tokens"),
    "engine.gpu_memory_utilization": ("90", "90%", "0,9", "900m"),
    "engine.chunked_prefill_size": ("8k", "8Ki", "8192tok"),
    "request.max_tokens": ("2k", "2048t", "2_048"),
}
RANGES: Mapping[str, Sequence[str]] = {
    "hardware.count": ("0", "-4", "4.5", "1000000"),
    "engine.tensor_parallel": ("0", "-1", "3", "8", "4.5"),
    "engine.max_model_len": ("0", "-1", "999999999999"),
    "engine.max_num_seqs": ("0", "-8", "8.5"),
    "engine.gpu_memory_utilization": ("0", "1.5", "-0.9", "2"),
    "engine.chunked_prefill_size": ("-8192", "1.5"),
    "engine.max_cudagraph_capture_size": ("-8", "0.5"),
    "speculative.num_speculative_tokens": ("0", "-16", "15", "17", "1000"),
    "container.stop_timeout": ("-1", "5", "1.5", "99999999"),
    "request.temperature": ("-0.7", "70"),
    "request.top_p": ("0", "1.99", "-1", "99"),
    "request.max_tokens": ("0", "-2048", "2048.5"),
}
ENUMS: Mapping[str, Sequence[str]] = {
    "apiVersion": ("beamdeploy/v2", "v1", "beamdeploy"),
    "hardware.gpu": ("B3000", "B30", "Tesla", "H100", "A100"),
    "quantization.weights": ("nvfp5", "nvfp-4", "fp4e", "awq", "gguf"),
    "quantization.dtype": ("bf16", "bfloat", "float61", "fp23"),
    "quantization.kv_cache": ("fp8_e4m4", "fp8e4m3", "int3", "fp4_e2m9"),
    "engine.name": ("tokenspeeed", "tokenspeed2", "trtllm", "ollama"),
    "engine.catalog": ("baem", "0.9.9", "main"),
    "engine.attention_backend": ("trtllm_mah", "flash_attn_9", "xformer"),
    "engine.moe_backend": ("flashinfer_trtlm", "tritton", "cutlas"),
    "parsers.tool_call": ("baem", "hermess", "pythonik"),
    "parsers.reasoning": ("baem", "deepseek_r11", "quen3"),
    "speculative.method": ("dflsh", "eagle9", "medussa"),
    "speculative.attention_backend": ("trtllm_mah", "flash_attn_9"),
    "engine.prefix_caching": ("enabled", "auto", "1"),
    "engine.kvstore": ("off", "none", "0", "disabled"),
    "container.init": ("yes", "tini", "1"),
}
IMAGES = (
    "LightSeekOrg/tokenspeed:beam",
    "lightseekorg/tokenspeed:beam:1",
    "lightseekorg/tokenspeed@sha256:12ab",
    "lightseekorg/tokenspeed@sha256",
    "https://docker.io/lightseekorg/tokenspeed:beam",
    "lightseekorg//tokenspeed:beam",
    "lightseekorg/tokenspeed:",
    "lightseekorg/token speed:beam",
    "lightseekorg/tokenspeed:-beam",
    "-lightseekorg/tokenspeed:beam",
    "4711",
)
PUBLISHED = (
    "8000",
    "0.0.0.0:8000",
    "127.0.0.1",
    "127.0.0.1:99999",
    ":8000",
    "localhost:8000",
    "127.0.0.256:8000",
    "127.0.0.1:8000:8000",
    "127.0.0.1:0",
    "127.0.0.1:http",
    '"*:8000"',
    "127.0.0.1:8000/udp",
)
FLAGS = (
    "tensr-parallel-size: 4",
    "enable-everything: true",
    "gpu-memory-utilisation: 0.9",
    "tp: 4",
    "max-model-length: 4096",
    "swap-space: 4",
    "enforce-eagr: true",
    "mem-fraction-static: 0.9",
    "--host: 0.0.0.0",
    "host: 0.0.0.0",
    "model: other",
    "port: 9000",
)


def kinds() -> Mapping[str, Kind]:
    """Every kind of fault."""
    return {
        "wrong type": wrong_type,
        "number as text, text as number": other_scalar,
        "misspelt key": misspelt_key,
        "unknown flag": _inserted("engine", "args", FLAGS),
        "wrong name": _replaced(ENUMS),
        "wrong unit": _replaced(UNITS),
        "out of range": _replaced(RANGES),
        "other engine": _replaced({"engine.name": ("vllm", "sglang")}),
        "key twice": key_twice,
        "required key gone": required_key_gone,
        "bad image": _replaced({"image.reference": IMAGES}),
        "bad publish": _replaced({"container.publish": PUBLISHED}),
        "value gone": value_gone,
        "tab": tab,
    }


def wrong_type(document: Document, rng: random.Random) -> Fault | None:
    """A list or a mapping where one value belongs."""
    path = rng.choice(_scalars(document))
    value = _written(document, path)
    return _with(document, path, rng.choice((f"[{value}]", f"{{value: {value}}}")))


def other_scalar(document: Document, rng: random.Random) -> Fault | None:
    """A number in quotes, or a number or truth where a text belongs."""
    path = rng.choice([path for path in _scalars(document) if path[-1] != "unpinned"])
    value = _value(document, path)
    if isinstance(value, str):
        return _with(document, path, rng.choice(("42", "true", "1.5")))
    return _with(document, path, rng.choice((f'"{value}"', f"'{value}'", "many")))


def misspelt_key(document: Document, rng: random.Random) -> Fault | None:
    """A letter lost, doubled or exchanged with the next, or `-` for `_`."""
    path = rng.choice([path for path in document.keys if not set(FREE_KEYS) & set(path[:-1])])
    key, (line, col) = str(path[-1]), document.place(path, key=True)
    at = rng.randrange(len(key) - 1)
    changed = rng.choice(
        (key[:at] + key[at + 1 :], key[:at] + key[at] + key[at:], key[:at] + key[at + 1] + key[at] + key[at + 2 :])
    )
    if "_" in key and rng.random() < 0.2:
        changed = key.replace("_", "-")
    if changed == key:
        return None
    lines = document.text.split("\n")
    text = lines[line - 1]
    lines[line - 1] = text[: col - 1] + changed + text[col - 1 + len(key) :]
    return Fault("\n".join(lines), line, f"{dotted(path)} written {changed}")


def key_twice(document: Document, rng: random.Random) -> Fault | None:
    path = rng.choice(_scalars(document))
    line, _ = document.place(path)
    lines = document.text.split("\n")
    lines.insert(line, lines[line - 1])
    return Fault("\n".join(lines), line + 1, f"{dotted(path)} twice")


def required_key_gone(document: Document, rng: random.Random) -> Fault | None:
    path = rng.choice([path for path in _required(load_schema("recipe"), document.data, ()) if path in document.keys])
    line, _ = document.place(path, key=True)
    lines = document.text.split("\n")
    last = _end(lines, line)
    section = document.place(path[:-1], key=True)[0] if len(path) > 1 else 0
    text = "\n".join(lines[: line - 1] + lines[last:])
    return Fault(text, section or _first_line(text), f"{dotted(path)} taken away")


def value_gone(document: Document, rng: random.Random) -> Fault | None:
    path = rng.choice(_scalars(document))
    return _with(document, path, "")


def tab(document: Document, rng: random.Random) -> Fault | None:
    """A tab for the blanks before a key."""
    path = rng.choice([path for path in document.keys if len(path) > 1])
    line, _ = document.place(path, key=True)
    lines = document.text.split("\n")
    lines[line - 1] = "\t" + lines[line - 1].lstrip()
    return Fault("\n".join(lines), line, f"a tab before {dotted(path)}")


def _replaced(values: Mapping[str, Sequence[str]]) -> Kind:
    def replaced(document: Document, rng: random.Random) -> Fault | None:
        path = tuple(rng.choice(sorted(values)).split("."))
        value = rng.choice(values[".".join(path)])
        return _with(document, path, value) if path in document.values and _written(document, path) != value else None

    return replaced


def _inserted(section: str, key: str, values: Sequence[str]) -> Kind:
    """A line below `section.key`, which is made where it is not there."""

    def inserted(document: Document, rng: random.Random) -> Fault | None:
        lines, value = document.text.split("\n"), rng.choice(values)
        path = (section, key)
        if path in document.keys and isinstance(_value(document, path), dict):
            line = document.place(path, key=True)[0]
            if lines[line - 1].rstrip().endswith(":"):
                lines.insert(line, f"    {value}")
                return Fault("\n".join(lines), line + 1, f"{section}.{key} with {value}")
        if path in document.keys:
            return None
        line = document.place((section,), key=True)[0]
        lines[line:line] = [f"  {key}:", f"    {value}"]
        return Fault("\n".join(lines), line + 2, f"{section}.{key} with {value}")

    return inserted


def _scalars(document: Document) -> list[Place]:
    """Keys whose value is one text, number or truth on the key's own line."""
    return [
        path
        for path in document.values
        if path in document.keys
        and not isinstance(_value(document, path), (dict, list))
        and document.keys[path].line == document.values[path].line
    ]


def _value(document: Document, path: Place) -> Any:
    value: Any = document.data
    for part in path:
        value = value[part]
    return value


def _written(document: Document, path: Place) -> str:
    """The value as it stands in the text, without the comment behind it."""
    line, col = document.place(path)
    return re.sub(r"\s+#.*|\s+$", "", document.text.split("\n")[line - 1][col - 1 :])


def _with(document: Document, path: Place, value: str) -> Fault:
    line, col = document.place(path)
    lines = document.text.split("\n")
    rest = lines[line - 1][col - 1 + len(_written(document, path)) :]
    lines[line - 1] = lines[line - 1][: col - 1] + value + rest
    return Fault("\n".join(lines), line, f"{dotted(path)}: {value or '(nothing)'}")


def _required(schema: Mapping[str, Any], value: Any, path: Place) -> Iterator[Place]:
    """Keys that the schema requires where the document stands."""
    if "$ref" in schema:
        target: Any = load_schema("recipe")
        for part in schema["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        schema = {**target, **{key: each for key, each in schema.items() if key != "$ref"}}
    yield from ((*path, name) for name in schema.get("required", ()))
    for name, below in schema.get("properties", {}).items():
        if isinstance(value, dict) and isinstance(below, dict) and isinstance(value.get(name), dict):
            yield from _required(below, value[name], (*path, name))


def _end(lines: Sequence[str], line: int) -> int:
    """The number of the last line that belongs to the key on `line`."""
    indent = len(lines[line - 1]) - len(lines[line - 1].lstrip())
    last = line
    for number in range(line + 1, len(lines) + 1):
        text = lines[number - 1]
        if text.strip() and len(text) - len(text.lstrip()) <= indent:
            break
        if text.strip():
            last = number
    return last


def _first_line(text: str) -> int:
    """Where the mapping of the whole file begins."""
    lines = text.split("\n")
    return next(number for number, line in enumerate(lines, 1) if line.strip() and not line.startswith("#"))


def _reported(file: Path, text: str) -> Counter[tuple[int, str, str]]:
    file.write_text(text, encoding="utf-8")
    problems = check_file(str(file)) or ()
    return Counter((each.line or 0, each.rule, each.what) for each in problems if each.level != "info")


def run(number: int, seed: int, folder: Path) -> list[Result]:
    """So many faults in turn: each kind as often as the others, each recipe as well."""
    rng = random.Random(seed)
    recipes = sorted(path for path in (ROOT / "recipes").glob("*.yaml") if not path.name.endswith(".lock.yaml"))
    results: list[Result] = []
    chosen = list(kinds().items())
    while len(results) < number:
        kind, make = chosen[len(results) % len(chosen)]
        recipe = rng.choice(recipes)
        document, _ = documents.load(str(recipe))
        assert document is not None
        fault = make(document, rng)
        if fault is None:
            continue
        before = {(rule, what) for _, rule, what in _reported(folder / recipe.name, document.text)}
        found = _reported(folder / recipe.name, fault.text)
        lines = tuple(sorted({line for line, rule, what in found if (rule, what) not in before}))
        results.append(Result(kind, recipe.name, fault, lines))
    return results


def show(results: Sequence[Result]) -> float:
    """Print the figures; the share that was reported at its line."""
    for kind in kinds():
        of_kind = [each for each in results if each.kind == kind]
        print(f"{kind:32}{sum(each.hit for each in of_kind):4} of {len(of_kind)}")
    share = sum(each.hit for each in results) / len(results)
    elsewhere = sum(not each.hit and bool(each.lines) for each in results)
    print(f"{len(results)} faults: {share:.1%} reported at their line, {elsewhere} at another, ", end="")
    print(f"{sum(not each.lines for each in results)} not at all")
    for each in results:
        if not each.hit:
            where = f"reported at {', '.join(map(str, each.lines))}" if each.lines else "not reported"
            print(f"  {each.recipe}:{each.fault.line}: {each.kind}: {each.fault.what}: {where}")
    return share


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure how many random faults validate reports at their line.")
    parser.add_argument("--faults", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return int(show(run(asked.faults, asked.seed, Path(folder))) < BAR)


if __name__ == "__main__":
    sys.exit(main())
