"""What an image reference names, asked from its registry: index, platform manifests and configs, by their digests.

OCI Distribution Specification 1.1; bearer tokens as in the Distribution project's "Token Authentication".
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from typing import Any
from urllib.parse import quote, urlencode

from beamdeploy import web
from beamdeploy.errors import FAILED, UNREACHABLE, HostError, Problem
from beamdeploy.image import ImageRef, repository
from beamdeploy.registry_login import HUB, Login, login

_HUB_API = "registry-1.docker.io"
_INDEXES = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
_MANIFESTS = ("application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json")


@dataclass(frozen=True)
class Platform:
    """One platform's image: digest of its manifest, and of its config, which is the image's id on a host."""

    manifest: str
    config: str


@dataclass(frozen=True)
class Resolved:
    """`digest`, of the index or the one manifest, is what `docker pull NAME@…` takes. `platforms`: "linux/amd64" → …"""

    digest: str
    platforms: Mapping[str, Platform]


@dataclass(frozen=True)
class Repository:
    """A repository of a registry and how it is asked."""

    registry: str
    name: str
    base: str
    login: Login | None


def resolve(ref: ImageRef, *, insecure: tuple[str, ...] = (), environ: Mapping[str, str] | None = None) -> Resolved:
    """What `ref` names now. `insecure`: registries (HOST[:PORT] or a network) that may be asked over plain HTTP.

    HostError: the registry cannot be reached (UNREACHABLE), refuses, or does not have it.
    """
    at = repository_of(ref, insecure, os.environ if environ is None else environ)
    authorization: list[str | None] = [None]
    body, kind = _manifest(at, ref.digest or ref.tag or "latest", authorization)
    digest = _digest(body)
    if ref.digest is not None and ref.digest != digest:
        raise HostError(_refused(at, "the registry gave another manifest than was asked for", "ask its operator"))
    if kind not in _INDEXES:
        platform, config = _platform(at, body, authorization)
        return Resolved(digest, {platform: Platform(digest, config)})
    named = dict(sorted(_listed(json.loads(body))))
    return Resolved(digest, {name: _fetched(at, name, one, authorization) for name, one in named.items()})


def repository_of(ref: ImageRef, insecure: tuple[str, ...], environ: Mapping[str, str]) -> Repository:
    """Where a reference's repository is asked. For docker the first part is a registry if it looks like one."""
    first, slash, rest = ref.name.partition("/")
    if not slash or not ("." in first or ":" in first or first == "localhost"):
        first, rest = HUB, ref.name
    if first in (HUB, "index.docker.io", _HUB_API):
        name = repository(ref.name)
        name = name if "/" in name else f"library/{name}"
        return Repository(HUB, name, f"https://{_HUB_API}", login(HUB, environ))
    scheme = "http" if _plain(first, insecure) else "https"
    return Repository(first, rest, f"{scheme}://{first}", login(first, environ))


def _plain(registry: str, insecure: tuple[str, ...]) -> bool:
    """Whether it is asked over plain HTTP: loopback as docker does, and what the user names."""
    host = registry.rsplit(":", 1)[0].strip("[]")
    if registry in insecure or host in insecure or host == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or any(address in network for network in _networks(insecure))


def _networks(insecure: tuple[str, ...]) -> Iterator[Any]:
    for each in insecure:
        try:
            yield ip_network(each, strict=False)
        except ValueError:
            continue


def _manifest(at: Repository, reference: str, authorization: list[str | None]) -> tuple[bytes, str]:
    """A manifest or index as it is, and its media type."""
    reply = _get(at, "manifests/" + quote(reference, safe=":"), ", ".join((*_INDEXES, *_MANIFESTS)), authorization)
    kind = reply.headers.get("content-type", "").partition(";")[0].strip()
    if kind not in (*_INDEXES, *_MANIFESTS):
        what = f"{at.registry}/{at.name}:{reference} is of a kind that docker no longer pulls ({kind or 'none named'})"
        raise HostError(_refused(at, what, "push it again with a docker of this decade"))
    return reply.body, kind


def _listed(index: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(platform, digest) of an index; attestations, which are of the platform "unknown", are none."""
    for entry in index.get("manifests") or ():
        platform = entry.get("platform") or {}
        words = [str(platform[key]) for key in ("os", "architecture", "variant") if platform.get(key)]
        if "unknown" not in words and len(words) > 1:
            yield "/".join(words), entry["digest"]


def _fetched(at: Repository, name: str, digest: str, authorization: list[str | None]) -> Platform:
    body, _ = _manifest(at, digest, authorization)
    if _digest(body) != digest:
        raise HostError(_refused(at, f"the manifest of {name} is not what the index names", "ask its operator"))
    return Platform(digest, json.loads(body)["config"]["digest"])


def _platform(at: Repository, manifest: bytes, authorization: list[str | None]) -> tuple[str, str]:
    """("linux/amd64", config digest) of one manifest; its config says the platform."""
    digest = json.loads(manifest)["config"]["digest"]
    config = json.loads(_get(at, f"blobs/{digest}", "*/*", authorization).body)
    words = [config.get(key) for key in ("os", "architecture", "variant") if config.get(key)]
    return "/".join(words), digest


def _digest(body: bytes) -> str:
    return "sha256:" + hashlib.sha256(body).hexdigest()


def _get(at: Repository, path: str, accept: str, authorization: list[str | None]) -> web.Reply:
    url = f"{at.base}/v2/{at.name}/{path}"
    reply = web.ask(url, headers={"Accept": accept}, authorization=authorization[0])
    if reply.status == 401:
        authorization[0] = _authorize(at, reply.headers.get("www-authenticate", ""))
        reply = web.ask(url, headers={"Accept": accept}, authorization=authorization[0])
    if not reply.ok:
        raise _failure(at, path, reply)
    return reply


def _authorize(at: Repository, challenge: str) -> str | None:
    """The Authorization that a 401 asks for; None: the user has none to give."""
    scheme, _, rest = challenge.partition(" ")
    if scheme.lower() == "basic":
        return at.login.basic if at.login and at.login.user else None
    fields = dict(re.findall(r'(\w+)="([^"]*)"', rest))
    if scheme.lower() != "bearer" or "realm" not in fields:
        return None
    asked = {"service": fields.get("service", ""), "scope": fields.get("scope") or f"repository:{at.name}:pull"}
    reply = _token(fields["realm"], asked, at.login)
    if not reply.ok:
        raise _failure(at, "token", reply)
    held = json.loads(reply.body)
    return f"Bearer {held.get('token') or held.get('access_token') or ''}"


def _token(realm: str, asked: Mapping[str, str], held: Login | None) -> web.Reply:
    if held is not None and not held.user:
        form = {**asked, "grant_type": "refresh_token", "refresh_token": held.secret, "client_id": "beamdeploy"}
        return web.ask(realm, form=urlencode(form).encode())
    return web.ask(f"{realm}?{urlencode(asked)}", authorization=held.basic if held else None)


def _failure(at: Repository, path: str, reply: web.Reply) -> HostError:
    named = f"{at.registry}/{at.name}"
    if reply.status is None:
        remedy = (
            "See that this machine reaches it (DNS, https_proxy). A registry without TLS is named with "
            f"--insecure-registry {at.registry}; or lock on a host that has the image: --from HOST."
        )
        what = f"the registry {at.registry} cannot be reached: {reply.reason}"
        return HostError(_refused(at, what, remedy), exit=UNREACHABLE)
    if reply.status in (401, 403):
        who = f"the login of {at.login.user or 'the identity token'}" if at.login else "nobody is logged in, and it"
        what = f"the registry does not let us read {named}: {who} is not enough (HTTP {reply.status})"
        return HostError(_refused(at, what, f"docker login {'' if at.registry == HUB else at.registry}".strip()))
    if reply.status == 404:
        what = f"the registry has no {named}:{path.removeprefix('manifests/')}"
        return HostError(_refused(at, what, "check name and tag in image.reference; a private one needs docker login"))
    if reply.status == 429:
        remedy = "wait, or docker login: who is logged in may pull more"
        return HostError(_refused(at, f"the registry {at.registry} gives no more for now (HTTP 429)", remedy))
    what = f"the registry {at.registry} answered HTTP {reply.status} for {named}"
    return HostError(_refused(at, what, "try again; ask its operator if it stays"), exit=FAILED)


def _refused(at: Repository, what: str, remedy: str) -> Problem:
    return Problem(what, remedy, f"registry {at.registry}")
