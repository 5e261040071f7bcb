"""The variables of an inventory that are ours: their spellings, and how each is read; all others are left alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from beamdeploy.documents import Document, Place
from beamdeploy.errors import Problem


@dataclass(frozen=True)
class Origin:
    """Where something is said: a path in a document, or (`document` None) words of the command line."""

    document: Document | None = None
    path: Place = ()
    words: str = ""

    def below(self, *keys: str) -> Origin:
        return Origin(self.document, (*self.path, *keys), self.words)

    @property
    def told(self) -> bool:
        """Whether reading the file has already found fault with this value."""
        return self.document is not None and self.path in self.document.faults

    def fault(self, what: str, remedy: str, *, rule: str, level: str = "error", key: bool = False) -> Problem:
        """A problem at this place; `key`: it is the name, not the value, that is wrong."""
        if self.document is None:
            return Problem(what, remedy, where=self.words, rule=rule, level=level)
        return self.document.problem(self.path, what, remedy, rule=rule, level=level, key=key)

    @property
    def text(self) -> str:
        """`file:line`, or the words, for a sentence about another place."""
        if self.document is None:
            return self.words
        return f"{self.document.file}:{self.document.place(self.path, key=True)[0]}"


@dataclass(frozen=True)
class Setting:
    """One of our variables as somebody wrote it. `value` is what a `Host` holds: str, int, bool or a tuple of them."""

    field: str
    spelling: str
    value: object
    origin: Origin


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


def _address(name: str, value: object) -> object | Fault:
    # no "-" first: ssh would take the address for an option; no user@ and :port: they have their own variables
    pattern = r"[A-Za-z0-9_][A-Za-z0-9_.-]*|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(%\w+)?"
    return _text(name, value, pattern, "give a host name or IP address alone; user and port have their own variables")


def _user(name: str, value: object) -> object | Fault:
    return _text(name, value, r"[^\s@:,/\-][^\s@:,/]*", "give a login name")


def _port(name: str, value: object) -> object | Fault:
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 65535:
        return value
    return text_fault(name, value if isinstance(value, str) else "port") or Fault(
        f"{name} is {value!r}", "give a number from 1 to 65535, without quotes", "BD114"
    )


def _connection(name: str, value: object) -> object | Fault:
    return _text(name, value, "ssh|local", "write ssh or local: beamdeploy knows no other connection", "BD113")


def _ansible_connection(name: str, value: object) -> object | Fault:
    known = r"(ansible\.builtin\.)?(ssh|smart|paramiko|paramiko_ssh|local)"
    read = _text(name, value, known, "write ssh or local: beamdeploy knows no other connection", "BD113")
    if isinstance(read, Fault):
        return read
    return "local" if read.endswith("local") else "ssh"


def _model_dir(name: str, value: object) -> object | Fault:
    # docker reads --mount as one line of CSV: a comma would start another key, a quote another syntax
    remedy = 'give an absolute path without comma and quotes, like "/srv/models/beam"; ~ is not expanded on a host'
    return _text(name, value, r"/[^,\"']*", remedy, "BD110")


def _gpus(name: str, value: object) -> object | Fault:
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


def _words(name: str, value: object) -> tuple[str, ...] | Fault:
    if not isinstance(value, list):
        return Fault(f"{name} is {value!r}", 'write a list of words, like ["--ulimit", "memlock=-1"]', "BD112")
    faults = [fault for word in value if (fault := text_fault(f"a word of {name}", word))]
    return faults[0] if faults else tuple(value)


HOOKS = ("before_stop", "after_ready", "on_failure")


def _hooks(name: str, value: object) -> object | Fault:
    remedy = f"write a mapping of {', '.join(HOOKS)} to lists of words"
    if not isinstance(value, dict) or not value:
        return Fault(f"{name} is {value!r}", remedy, "BD113")
    unknown = [when for when in value if when not in HOOKS]
    if unknown:
        return Fault(f"{name} has no {unknown[0]!r}", remedy, "BD113")
    read = {when: _words(f"{name}.{when}", words) for when, words in value.items()}
    faults = [words for words in read.values() if isinstance(words, Fault)]
    empty = [when for when, words in read.items() if not words]
    if empty:
        return Fault(f"{name}.{empty[0]} names no program", remedy, "BD113")
    return faults[0] if faults else tuple(read.items())


def _docker(name: str, value: object) -> object | Fault:
    words = (value,) if isinstance(value, str) else _words(name, value)
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


def _file(name: str, value: object) -> object | Fault:
    return _text(name, value, r"[^\-].*", "give the path of a file on this machine; ~ is your home")


def _proxy_jump(name: str, value: object) -> object | Fault:
    return _text(name, value, r"[^\s\-]\S*", "give [user@]host[:port] as for ssh -J, without options")


def _become(name: str, value: object) -> object | Fault:
    if isinstance(value, bool):
        return value
    fault = text_fault(name, value) if isinstance(value, str) else None
    return fault or Fault(f"{name} is {value!r}", "write true or false, without quotes")


def _state_dir(name: str, value: object) -> object | Fault:
    return _text(name, value, r"(~/|/).*", "give an absolute path on the host, or one that begins with ~/")


def _priority(name: str, value: object) -> object | Fault:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return Fault(f"{name} is {value!r}", "give a whole number")


PRIORITY = "ansible_group_priority"

# spelling → (field of Host, how it is read)
SPELLINGS: Mapping[str, tuple[str, Reader]] = MappingProxyType(
    {
        "address": ("address", _address),
        "ansible_host": ("address", _address),
        "ansible_ssh_host": ("address", _address),
        "user": ("user", _user),
        "ansible_user": ("user", _user),
        "ansible_ssh_user": ("user", _user),
        "port": ("port", _port),
        "ansible_port": ("port", _port),
        "ansible_ssh_port": ("port", _port),
        "connection": ("connection", _connection),
        "ansible_connection": ("connection", _ansible_connection),
        "model_dir": ("model_dir", _model_dir),
        "gpus": ("gpus", _gpus),
        "docker": ("docker", _docker),
        "known_hosts": ("known_hosts", _file),
        "identity_file": ("identity_file", _file),
        "ansible_private_key_file": ("identity_file", _file),
        "ansible_ssh_private_key_file": ("identity_file", _file),
        "proxy_jump": ("proxy_jump", _proxy_jump),
        "become": ("become", _become),
        "ansible_become": ("become", _become),
        "state_dir": ("state_dir", _state_dir),
        "docker_args": ("docker_args", _words),
        "hooks": ("hooks", _hooks),
        PRIORITY: (PRIORITY, _priority),
    }
)

# Ansible honours these and we do not: silence would connect in another way than the user wrote
_UNREAD = {
    "ansible_ssh_common_args": "use proxy_jump, or write the options for this host into ~/.ssh/config",
    "ansible_ssh_extra_args": "write the options for this host into ~/.ssh/config",
    "ansible_ssh_args": "write the options for this host into ~/.ssh/config",
    "ansible_password": "use a key: beamdeploy sends no passwords",
    "ansible_ssh_pass": "use a key: beamdeploy sends no passwords",
    "ansible_become_user": "become runs docker as root, by sudo -n",
    "ansible_become_password": "allow docker in sudoers without a password, or add the user to the group docker",
    "ansible_become_pass": "allow docker in sudoers without a password, or add the user to the group docker",
    "ansible_become_method": "become is always sudo -n",
}
_MEANT = {"gpu": "gpus", "addr": "address", "model_directory": "model_dir", "identity": "identity_file"}
_STRUCTURE = ("hosts", "children", "vars")


def read_variables(variables: Mapping[str, object], origin: Origin) -> tuple[dict[str, Setting], tuple[Problem, ...]]:
    """Our variables of one mapping by field of `Host`, and all that is wrong with its names and values."""
    settings: dict[str, Setting] = {}
    problems: list[Problem] = []
    for name, value in variables.items():
        found = read_variable(name, value, origin.below(name))
        if isinstance(found, Problem):
            problems.append(found)
        elif found and (clash := disagreement(settings.setdefault(found.field, found), found, rule="BD105")):
            problems.append(clash)
    return settings, tuple(problems)


def read_variable(name: str, value: object, origin: Origin) -> Setting | Problem | None:
    """One variable; None: it is not ours."""
    if name not in SPELLINGS:
        return next(_doubts(name, origin), None)
    if origin.told:
        return None
    if value is None:
        return origin.fault(f"{name} is empty (null)", "remove the key or give a value", rule="BD107")
    field, reader = SPELLINGS[name]
    read = reader(name, value)
    if isinstance(read, Fault):
        return origin.fault(read.what, read.remedy, rule=read.rule)
    return Setting(field, name, read, origin)


def disagreement(first: Setting, second: Setting, *, rule: str) -> Problem | None:
    """The problem of two settings of equal rank for one field, unless they say the same."""
    if first.value == second.value:
        return None
    what = f"{second.spelling} is {_shown(second)} here and {first.spelling} is {_shown(first)} at {first.origin.text}"
    return second.origin.fault(what, "keep one of them", rule=rule)


def _shown(setting: Setting) -> str:
    return repr(list(setting.value) if isinstance(setting.value, tuple) else setting.value)


def _doubts(name: str, origin: Origin) -> Iterator[Problem]:
    """What a name that is not ours was probably meant to be; nothing for most names."""
    if name in _STRUCTURE:
        remedy = "variables stand directly below the host's name"
        yield origin.fault(f"{name} is a key of groups, not of hosts or variables", remedy, rule="BD102", key=True)
    if name in _UNREAD:
        yield origin.fault(f"{name} is not read by beamdeploy", _UNREAD[name], rule="BD119", level="warning", key=True)
    if meant := _meant(name):
        spelling, level = meant
        remedy = f"did you mean {spelling}?"
        yield origin.fault(f"{name} is no variable of beamdeploy", remedy, rule="BD104", level=level, key=True)


def _meant(name: str) -> tuple[str, str] | None:
    """(spelling, level) of a near miss. Whole other words one letter away ("users", "stage_dir") are not errors."""
    folded = _fold(name)
    for spelling in SPELLINGS:
        if folded == _fold(spelling):
            return spelling, "error"
    if folded in map(_fold, _MEANT):
        return next(meant for wrong, meant in _MEANT.items() if _fold(wrong) == folded), "error"
    for spelling in SPELLINGS:
        if len(_fold(spelling)) > 5 and (level := _slip(folded, _fold(spelling))):
            return spelling, level
    return None


def _fold(name: str) -> str:
    return re.sub(r"[-_. ]", "", name).casefold()


def _slip(written: str, meant: str) -> str | None:
    """ "error" for a letter left out or two swapped, "warning" for one more or another letter, None for more."""
    if written in {meant[:i] + meant[i + 1 :] for i in range(len(meant))}:
        return "error"
    if written in {meant[:i] + meant[i + 1] + meant[i] + meant[i + 2 :] for i in range(len(meant) - 1)}:
        return "error"
    if meant in {written[:i] + written[i + 1 :] for i in range(len(written))}:
        return "warning"
    other = sum(a != b for a, b in zip(written, meant, strict=False))
    return "warning" if len(written) == len(meant) and other == 1 else None
