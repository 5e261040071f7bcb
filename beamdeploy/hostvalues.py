"""How each of our variables of an inventory is read: a value as `Host` holds it, or why it is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from beamdeploy.gpu_access import ACCESS


@dataclass(frozen=True)
class Fault:
    """Why a value or a name is refused, before it is known where it stands."""

    what: str
    remedy: str
    rule: str = "BD109"


Reader = Callable[[str, object], "object | Fault"]


def text_fault(name: str, value: object) -> Fault | None:
    """Why `value` can be no word of a command; None: it can."""
    if not isinstance(value, str):
        return Fault(f"{name} is {value!r}, not text", f"write {name} as text, in quotes where it looks like a number")
    if "{{" in value or "{%" in value:
        return Fault(
            f"{name} is a template: {value!r}", "write the value itself: inventories are not templates", "BD108"
        )
    if not value or value != value.strip():
        return Fault(f"{name} is empty or has blanks at an edge: {value!r}", f"remove {name} or the blanks")
    if not value.isprintable() or "\\" in value:
        return Fault(f"{name} has a line break, control character or backslash: {value!r}", "remove that character")
    return None


def _text(name: str, value: object, pattern: str, remedy: str, rule: str = "BD109") -> str | Fault:
    fault = text_fault(name, value)
    if fault or not isinstance(value, str):
        return fault or Fault(f"{name} is {value!r}", remedy, rule)
    return value if re.fullmatch(pattern, value) else Fault(f"{name} is {value!r}", remedy, rule)


def read_address(name: str, value: object) -> object | Fault:
    # no "-" first: ssh would take the address for an option; no user@ and :port: they have their own variables
    pattern = r"[A-Za-z0-9_][A-Za-z0-9_.-]*|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(%\w+)?"
    return _text(name, value, pattern, "give a host name or IP address alone; user and port have their own variables")


def read_user(name: str, value: object) -> object | Fault:
    return _text(name, value, r"[^\s@:,/\-][^\s@:,/]*", "give a login name")


def read_port(name: str, value: object) -> object | Fault:
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 65535:
        return value
    return text_fault(name, value if isinstance(value, str) else "port") or Fault(
        f"{name} is {value!r}", "give a number from 1 to 65535, without quotes", "BD114"
    )


def read_connection(name: str, value: object) -> object | Fault:
    return _text(name, value, "ssh|local", "write ssh or local: beamdeploy knows no other connection", "BD113")


def read_ansible_connection(name: str, value: object) -> object | Fault:
    known = r"(ansible\.builtin\.)?(ssh|smart|paramiko|paramiko_ssh|local)"
    read = _text(name, value, known, "write ssh or local: beamdeploy knows no other connection", "BD113")
    if isinstance(read, Fault):
        return read
    return "local" if read.endswith("local") else "ssh"


def read_interface(name: str, value: object) -> object | Fault:
    return _text(name, value, r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,14}", "give the name of a network interface, like eth0")


def read_ipv4(name: str, value: object) -> object | Fault:
    # TokenSpeed parts host and port at the only colon, so that an IPv6 address cannot be said
    octet = r"(25[0-5]|2[0-4]\d|1?\d?\d)"
    return _text(name, value, rf"{octet}(\.{octet}){{3}}", "give an IPv4 address, like 10.0.0.5")


def read_model_dir(name: str, value: object) -> object | Fault:
    # docker reads --mount as one line of CSV: a comma would start another key, a quote another syntax
    remedy = 'give an absolute path without comma and quotes, like "/srv/models/beam"; ~ is not expanded on a host'
    return _text(name, value, r"/[^,\"']*", remedy, "BD110")


def read_gpus(name: str, value: object) -> object | Fault:
    remedy = "write a list of different GPU numbers as nvidia-smi shows them, like [0, 1, 2, 3]"
    if isinstance(value, str) and (fault := text_fault(name, value)):
        return fault
    if not isinstance(value, (list, tuple)) or not value:
        return Fault(f"{name} is {value!r}", remedy, "BD111")
    if any(isinstance(gpu, bool) or not isinstance(gpu, int) or gpu < 0 for gpu in value):
        return Fault(f"{name} has something else than GPU numbers: {list(value)!r}", remedy, "BD111")
    if len(set(value)) < len(value):
        return Fault(f"{name} names a GPU twice: {list(value)!r}", remedy, "BD111")
    return tuple(value)


def read_words(name: str, value: object) -> tuple[str, ...] | Fault:
    if not isinstance(value, list):
        return Fault(f"{name} is {value!r}", 'write a list of words, like ["--ulimit", "memlock=-1"]', "BD112")
    faults = [fault for word in value if (fault := text_fault(f"a word of {name}", word))]
    return faults[0] if faults else tuple(value)


def read_gpu_access(name: str, value: object) -> object | Fault:
    remedy = f"write {', '.join(ACCESS[:-1])} or {ACCESS[-1]}: --gpus, CDI names or device files"
    return _text(name, value, "|".join(ACCESS), remedy)


# What beamdeploy says itself of every container, or what would end how it looks after one.
_OURS = ("--detach", "-d", "--entrypoint", "--gpus", "--name", "--rm")


def read_docker_args(name: str, value: object) -> tuple[str, ...] | Fault:
    words = read_words(name, value)
    if isinstance(words, Fault):
        return words
    ours = [word for word in words if word.partition("=")[0] in _OURS]
    if ours:
        gpus = "gpu_access and gpus say which GPUs a container gets, and how" if "--gpus" in ours[0] else ""
        return Fault(f"{name} has {ours[0]}, which beamdeploy says itself", gpus or f"leave out {ours[0]}", "BD122")
    if "--" in words:
        # docker would take the next word, one of beamdeploy's own, for the image
        return Fault(f"{name} has '--', which ends the options", "leave it out", "BD122")
    if words and not words[0].startswith("-"):
        # docker would take it for the image
        return Fault(
            f"{name} begins with {words[0]!r}, which is no option", "begin with an option, like --ulimit", "BD122"
        )
    return words


HOOKS = ("before_stop", "after_ready", "on_failure")


def read_hooks(name: str, value: object) -> object | Fault:
    remedy = f"write a mapping of {', '.join(HOOKS)} to lists of words"
    if not isinstance(value, dict) or not value:
        return Fault(f"{name} is {value!r}", remedy, "BD113")
    unknown = [when for when in value if when not in HOOKS]
    if unknown:
        return Fault(f"{name} has no {unknown[0]!r}", remedy, "BD113")
    read = {when: read_words(f"{name}.{when}", words) for when, words in value.items()}
    faults = [words for words in read.values() if isinstance(words, Fault)]
    empty = [when for when, words in read.items() if not words]
    if empty:
        return Fault(f"{name}.{empty[0]} names no program", remedy, "BD113")
    return faults[0] if faults else tuple(read.items())


def read_docker(name: str, value: object) -> object | Fault:
    words = (value,) if isinstance(value, str) else read_words(name, value)
    if isinstance(words, Fault):
        return words
    if isinstance(value, str) and (fault := text_fault(name, value)):
        return fault
    if isinstance(value, str) and re.search(r"\s", value):
        remedy = f"write a list of words: {name}: [{', '.join(value.split())}]"
        return Fault(f"{name} is one text with blanks: {value!r}", remedy, "BD112")
    if not words or words[0].startswith("-"):
        return Fault(
            f"{name} names no program: {value!r}", "give the docker client, like docker or /usr/bin/docker", "BD112"
        )
    return words


def read_file(name: str, value: object) -> object | Fault:
    return _text(name, value, r"[^\-].*", "give the path of a file on this machine; ~ is your home")


def read_proxy_jump(name: str, value: object) -> object | Fault:
    return _text(name, value, r"[^\s\-]\S*", "give [user@]host[:port] as for ssh -J, without options")


def read_become(name: str, value: object) -> object | Fault:
    if isinstance(value, bool):
        return value
    fault = text_fault(name, value) if isinstance(value, str) else None
    return fault or Fault(f"{name} is {value!r}", "write true or false, without quotes")


def read_state_dir(name: str, value: object) -> object | Fault:
    return _text(name, value, r"(~/|/).*", "give an absolute path on the host, or one that begins with ~/")


def read_priority(name: str, value: object) -> object | Fault:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return Fault(f"{name} is {value!r}", "give a whole number")
