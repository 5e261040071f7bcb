"""The variables of an inventory that are ours: their spellings, and how each is read; all others are left alone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from beamdeploy.documents import Document, Place
from beamdeploy.errors import Problem
from beamdeploy.hostvalues import (
    Fault,
    Reader,
    read_address,
    read_ansible_connection,
    read_become,
    read_connection,
    read_docker,
    read_docker_args,
    read_file,
    read_gpu_access,
    read_gpus,
    read_hooks,
    read_interface,
    read_ipv4,
    read_model_dir,
    read_port,
    read_priority,
    read_proxy_jump,
    read_state_dir,
    read_user,
)
from beamdeploy.plaintext import secret_variables


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


PRIORITY = "ansible_group_priority"

# spelling → (field of Host, how it is read)
SPELLINGS: Mapping[str, tuple[str, Reader]] = MappingProxyType(
    {
        "address": ("address", read_address),
        "ansible_host": ("address", read_address),
        "ansible_ssh_host": ("address", read_address),
        "user": ("user", read_user),
        "ansible_user": ("user", read_user),
        "ansible_ssh_user": ("user", read_user),
        "port": ("port", read_port),
        "ansible_port": ("port", read_port),
        "ansible_ssh_port": ("port", read_port),
        "connection": ("connection", read_connection),
        "ansible_connection": ("connection", read_ansible_connection),
        "model_dir": ("model_dir", read_model_dir),
        "gpus": ("gpus", read_gpus),
        "docker": ("docker", read_docker),
        "known_hosts": ("known_hosts", read_file),
        "identity_file": ("identity_file", read_file),
        "ansible_private_key_file": ("identity_file", read_file),
        "ansible_ssh_private_key_file": ("identity_file", read_file),
        "proxy_jump": ("proxy_jump", read_proxy_jump),
        "become": ("become", read_become),
        "ansible_become": ("become", read_become),
        "state_dir": ("state_dir", read_state_dir),
        "gpu_access": ("gpu_access", read_gpu_access),
        "docker_args": ("docker_args", read_docker_args),
        "hooks": ("hooks", read_hooks),
        "rank_interface": ("rank_interface", read_interface),
        "rank_address": ("rank_address", read_ipv4),
        PRIORITY: (PRIORITY, read_priority),
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
        if isinstance(found, Setting) and found.field == "docker_args":
            problems += _plain_secrets(found)
    return settings, tuple(problems)


def _plain_secrets(setting: Setting) -> Iterator[Problem]:
    words = setting.value if isinstance(setting.value, tuple) else ()
    for name in secret_variables(tuple(map(str, words))):
        what = f"{setting.spelling} holds {name} in plain text: the file, docker inspect, ps and the history show it"
        remedy = f"write it in the recipe instead, container.secrets: {{{name}: {{env: {name}}}}}; revoke it if shared"
        yield setting.origin.fault(what, remedy, rule="BD123", level="warning")


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
