"""The files to begin with: a shipped recipe fitted to a server, an inventory, and the schemas that editors ask for."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from importlib.resources import files as resources
from pathlib import Path
from typing import Any

from beamdeploy import documents
from beamdeploy.check import check_all
from beamdeploy.documents import Document, Place
from beamdeploy.errors import InputError, Problem

SCHEMAS = ("recipe", "inventory")


@dataclass(frozen=True)
class Shipped:
    """A recipe of ours: its file's name and text, and what of it a server decides."""

    file: str
    text: str
    name: str
    gpu: str
    count: int


@dataclass(frozen=True)
class Start:
    """What to begin with. `hosts` are [USER@]HOST[:PORT]; none: an example that must be replaced."""

    recipe: Shipped
    gpu: str
    count: int
    hosts: tuple[str, ...]
    model_dir: str


def shipped(name: str) -> Shipped:
    """The first shipped recipe of that name. InputError: there is none."""
    known = {each.name: each for each in reversed(_all_shipped())}
    if name not in known:
        near = get_close_matches(name, known, 1)
        remedy = f"did you mean {near[0]}?" if near else f"there are: {', '.join(known)}"
        raise InputError((Problem(f"no recipe for {name!r} is shipped", remedy, where="--model"),))
    return known[name]


def files(start: Start) -> Mapping[str, str]:
    """Relative path → text. InputError: what would be written is not valid, with the reason."""
    texts = {
        f"recipes/{start.recipe.name}-{start.count}x{start.gpu.lower()}.yaml": recipe_text(start),
        "inventories/default.yaml": inventory_text(start),
    }
    _checked(texts)
    schemas = {f"schemas/{name}.schema.json": _packaged("schemas", f"{name}.schema.json") for name in SCHEMAS}
    return {**texts, **schemas}


def write(folder: str, path: str, text: str) -> bool:
    """Write a new file; False: there is one, which is left alone."""
    target = Path(folder, path)
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with open(target, "x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError:
        return False
    return True


def recipe_text(start: Start) -> str:
    """The shipped recipe with GPU, number and tensor parallelism of the server."""
    text = start.recipe.text
    if (start.gpu, start.count) == (start.recipe.gpu, start.recipe.count):
        return text
    said = f"{start.recipe.name} on one server with {start.count} {start.gpu} GPUs"
    values = {
        ("description",): said,
        ("hardware", "gpu"): start.gpu,
        ("hardware", "count"): str(start.count),
        ("engine", "tensor_parallel"): str(start.count),
    }
    for path, value in values.items():
        text = _with_value(text, path, value)
    # another server was not seen, and variants are for the servers that they name
    text = re.sub(r"(?m)^verified: .*\n", "", text.partition("\nvariants:\n")[0])
    return text.rstrip("\n") + "\n"


def inventory_text(start: Start) -> str:
    """An inventory of the hosts in Ansible's form."""
    hosts = "".join(_host_lines(host) for host in start.hosts or ("deploy@192.0.2.10",))
    example = "" if start.hosts else "      # an address for documentation: put in your server's\n"
    return (
        "# yaml-language-server: $schema=../schemas/inventory.schema.json\n"
        "# Ansible's form. A host may also be just an alias of ~/.ssh/config.\n"
        "all:\n"
        "  vars:\n"
        f"    model_dir: {_text(start.model_dir)} # on each server, the folder that holds the recipe's weights\n"
        "    # gpus: [0, 1, 2, 3]   # which GPUs to use; without it the first hardware.count\n"
        "    # proxy_jump: bastion.example.org\n"
        "  children:\n"
        "    gpu_servers:\n"
        "      hosts:\n"
        f"{example.replace('      #', '        #')}{hosts}"
    )


def _all_shipped() -> list[Shipped]:
    folder = resources("beamdeploy") / "recipes"
    found = (each.name for each in folder.iterdir() if re.fullmatch(r".+(?<!\.lock)\.ya?ml", each.name))
    # of several recipes of one name the publisher's own comes first
    names = sorted(found, key=lambda name: ("tokenspeed" not in name, name))
    return [_shipped(name, _packaged("recipes", name)) for name in names]


def _shipped(file: str, text: str) -> Shipped:
    document, _ = documents.load(file, text)
    assert document is not None  # held by a test
    data: Any = document.data
    return Shipped(file, text, data["name"], data["hardware"]["gpu"], data["hardware"]["count"])


def _packaged(*path: str) -> str:
    return resources("beamdeploy").joinpath(*path).read_text(encoding="utf-8")


def _with_value(text: str, path: Place, value: str) -> str:
    """`text` with another value at `path`; blanks and comment behind it stay."""
    document, _ = documents.load("", text)
    if not isinstance(document, Document) or path not in document.values:
        return text
    line, col = document.place(path)
    lines = text.split("\n")
    rest = lines[line - 1][col - 1 :]
    comment = re.search(r"\s+#.*", rest)
    lines[line - 1] = lines[line - 1][: col - 1] + value + (comment[0] if comment else "")
    return "\n".join(lines)


def _host_lines(host: str) -> str:
    match = re.fullmatch(r"(?:(?P<user>[^@\s]+)@)?(?P<address>\[[^\]]+\]|[^@:\s]+)(?::(?P<port>\d+))?", host)
    if match is None:
        raise InputError((Problem(f"{host!r} is not a server", "write it as user@host or host:port", where="--host"),))
    address = match["address"].strip("[]")
    said = {"address": address, "user": match["user"], "port": match["port"]}
    lines = [f"          {key}: {value if key == 'port' else _text(value)}\n" for key, value in said.items() if value]
    return f"        {_text(_name(address))}:\n{''.join(lines)}"


def _name(address: str) -> str:
    """The first label of a name; an address as it is."""
    return address if re.fullmatch(r"[\d.]+|.*:.*", address) else address.partition(".")[0]


def _text(value: str) -> str:
    """Text as it is written in YAML."""
    plain = re.fullmatch(r"[A-Za-z/][\w./@-]*", value) and value.lower() not in (
        "yes",
        "no",
        "on",
        "off",
        "true",
        "false",
        "null",
    )
    return value if plain else '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _checked(texts: Mapping[str, str]) -> None:
    """InputError: what the check of these files finds."""
    with tempfile.TemporaryDirectory() as folder:
        for path, text in texts.items():
            write(folder, path, text)
        report = check_all(os.path.join(folder, path) for path in texts)
    if report.exit:
        found = [each for each in report.problems if each.level == "error"]
        raise InputError(replace(each, file=None, line=None, col=None, where="what init would write") for each in found)
