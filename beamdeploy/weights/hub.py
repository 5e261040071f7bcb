"""What a checkpoint's folder holds, asked from a model hub: every file's size and sha256 at a commit.

Hugging Face Hub API, as huggingface_hub 2.4 speaks it. The token goes into one header and nowhere else.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from beamdeploy import web
from beamdeploy.errors import FAILED, UNREACHABLE, HostError, Problem
from beamdeploy.lock import LockedFile, LockedFolder
from beamdeploy.regular import text_of
from beamdeploy.weights.listing import is_read

ENDPOINT = "https://huggingface.co"
_AT_ONCE = 8


@dataclass(frozen=True)
class Source:
    """A repository of a hub. `revision` None: its main branch."""

    repository: str
    revision: str | None = None

    @property
    def text(self) -> str:
        return f"hf://{self.repository}" + (f"@{self.revision}" if self.revision else "")


def parse_source(text: str | None) -> Source | None:
    """`hf://OWNER/NAME[@REVISION]`; None: it is no hub's."""
    if text is None or not text.startswith("hf://"):
        return None
    repository, _, revision = text.removeprefix("hf://").partition("@")
    return Source(repository, revision or None)


def endpoint(environ: Mapping[str, str]) -> str:
    """`$HF_ENDPOINT`, for a mirror, or the hub itself."""
    return (environ.get("HF_ENDPOINT") or ENDPOINT).rstrip("/")


def token(environ: Mapping[str, str]) -> str | None:
    """The user's token, found where `hf` finds it: $HF_TOKEN, $HF_TOKEN_PATH, $HF_HOME/token; None: there is none."""
    home = environ.get("HF_HOME") or f"{environ.get('HOME', '')}/.cache/huggingface"
    if environ.get("HF_TOKEN"):
        return environ["HF_TOKEN"].strip()
    try:
        held = text_of(environ.get("HF_TOKEN_PATH") or f"{home}/token").strip()
    except OSError:
        return None
    return held or None


def fetch_folder(source: Source, environ: Mapping[str, str] | None = None) -> LockedFolder:
    """The files of a repository at the commit that its revision names now. HostError: the hub does not say.

    Small files have no sha256 on the hub: they are fetched and hashed.
    """
    env = os.environ if environ is None else environ
    bearer = token(env)
    url = f"{endpoint(env)}/api/models/{source.repository}/revision/{quote(source.revision or 'main', safe='')}"
    reply = web.ask(f"{url}?blobs=true", authorization=f"Bearer {bearer}" if bearer else None)
    if not reply.ok:
        raise failure(source, env, reply)
    held = json.loads(reply.body)
    commit = str(held["sha"])
    entries = [entry for entry in held["siblings"] if is_read(str(entry["rfilename"]))]

    def work(entry: Mapping[str, Any]) -> LockedFile:
        return _file(Source(source.repository, commit), entry, env, bearer)

    with ThreadPoolExecutor(_AT_ONCE) as at_once:
        files = dict(zip((str(entry["rfilename"]) for entry in entries), at_once.map(work, entries), strict=True))
    return LockedFolder(source.text, commit, dict(sorted(files.items())))


def _file(source: Source, entry: Mapping[str, Any], env: Mapping[str, str], bearer: str | None) -> LockedFile:
    large = entry.get("lfs")
    if large:
        return LockedFile(int(large["size"]), str(large.get("sha256") or large.get("oid")))
    name = str(entry["rfilename"])
    url = f"{endpoint(env)}/{source.repository}/resolve/{source.revision}/{quote(name)}"
    reply = web.ask(url, authorization=f"Bearer {bearer}" if bearer else None)
    if not reply.ok:
        raise failure(source, env, reply)
    blob = hashlib.sha1(b"blob %d\0" % len(reply.body) + reply.body, usedforsecurity=False).hexdigest()
    if entry.get("blobId") not in (None, blob):
        what = f"{endpoint(env)} gave another {name} of {source.text} than it lists"
        raise HostError(Problem(what, "a proxy or mirror changes files: ask its operator", "hub"))
    return LockedFile(len(reply.body), hashlib.sha256(reply.body).hexdigest())


def failure(source: Source, environ: Mapping[str, str], reply: web.Reply) -> HostError:
    """Why the hub did not answer, in words that say what to do."""
    at = endpoint(environ)
    name = source.text
    if reply.status is None:
        remedy = (
            "See that this machine reaches it (DNS, https_proxy), name a mirror in HF_ENDPOINT, or take the files of "
            "a host that is known to be good: --from HOST."
        )
        problem = Problem(f"the hub {at} cannot be reached for {name}: {reply.reason}", remedy, "hub")
        return HostError(problem, exit=UNREACHABLE)
    code = reply.headers.get("x-error-code", "")
    return HostError(Problem(*_said(at, source, reply.status, code, token(environ) is not None), "hub"), exit=FAILED)


def _said(at: str, source: Source, status: int, code: str, with_token: bool) -> tuple[str, str]:
    """(what, remedy) of a refusal."""
    name = source.text
    page = f"{at}/{source.repository}"
    log_in = "put a token that may read it into HF_TOKEN, or log in: hf auth login"
    if code == "GatedRepo" or status == 403:
        what = f"{name} is gated: the hub shows it only to accounts that were let in (HTTP {status})"
        return what, f"ask for access on {page}, then {log_in}"
    if code == "RevisionNotFound":
        return f"{name}: the hub has no such revision (HTTP {status})", "check what follows @ in the recipe's source"
    if code == "EntryNotFound":
        return f"{name}: the hub lists a file that it does not have (HTTP {status})", "try again"
    if status in (401, 404):
        known = "the token that was sent may not read it" if with_token else "no token was sent"
        return f"the hub has no {name}, or hides it ({known}; HTTP {status})", f"check the name; if private, {log_in}"
    if status == 429:
        return f"the hub gives no more for now (HTTP 429) for {name}", f"wait some minutes; with a token more: {log_in}"
    if status == 407:
        return f"the proxy wants a login before it asks {at} (HTTP 407)", "put user and password into https_proxy"
    return f"the hub {at} answered HTTP {status} for {name}", "try again; a mirror can be named in HF_ENDPOINT"


def is_commit(revision: str | None) -> bool:
    """Whether a revision names one commit for ever."""
    return revision is not None and re.fullmatch(r"[0-9a-f]{40}", revision) is not None
