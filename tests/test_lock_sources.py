"""What registries and hubs say, over real HTTP on loopback, and every way in which they refuse."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from beamdeploy import registry, web
from beamdeploy.errors import FAILED, UNREACHABLE, BeamdeployError, HostError
from beamdeploy.image import parse_reference
from beamdeploy.registry import Platform, Resolved, repository_of
from beamdeploy.registry_login import Login, login
from beamdeploy.sandbox import checkpoint
from beamdeploy.weights.hub import Source, fetch_folder, parse_source, token
from tests.hub import Hub, serve

OCI = "application/vnd.oci.image."


def sha(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


CONFIG = json.dumps({"os": "linux", "architecture": "amd64"}).encode()
MANIFEST = json.dumps({"mediaType": f"{OCI}manifest.v1+json", "config": {"digest": sha(CONFIG)}, "layers": []}).encode()
ARM = json.dumps({"config": {"digest": "sha256:" + "5" * 64}, "layers": []}).encode()
INDEX = json.dumps(
    {
        "manifests": [
            {"digest": sha(MANIFEST), "platform": {"os": "linux", "architecture": "amd64"}},
            {"digest": sha(ARM), "platform": {"os": "linux", "architecture": "arm64", "variant": "v8"}},
            {"digest": "sha256:" + "9" * 64, "platform": {"os": "unknown", "architecture": "unknown"}},
        ]
    }
).encode()
HELD: dict[str, tuple[str, bytes]] = {
    "manifests/multi": (f"{OCI}index.v1+json", INDEX),
    "manifests/one": (f"{OCI}manifest.v1+json", MANIFEST),
    f"manifests/{sha(MANIFEST)}": (f"{OCI}manifest.v1+json", MANIFEST),
    f"manifests/{sha(ARM)}": (f"{OCI}manifest.v1+json", ARM),
    "manifests/forged": (f"{OCI}index.v1+json", INDEX),
    "manifests/old": ("application/vnd.docker.distribution.manifest.v1+prettyjws", b"{}"),
    f"blobs/{sha(CONFIG)}": ("application/octet-stream", CONFIG),
}


class _Registry(BaseHTTPRequestHandler):
    """A registry behind bearer tokens: user "me", password "secret", or the identity token "idtoken"."""

    asked: list[str]

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_POST(self) -> None:
        form = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self._say(200, b'{"access_token": "t"}' if "refresh_token=idtoken" in form else b"{}")

    def do_GET(self) -> None:
        self.asked.append(self.path)
        given = self.headers.get("Authorization", "")
        if self.path.startswith("/token"):
            good = given == "Basic " + base64.b64encode(b"me:secret").decode()
            self._say(200 if good else 401, b'{"token": "t"}')
        elif given != "Bearer t":
            realm = f'Bearer realm="http://127.0.0.1:{self.headers["Host"].split(":")[1]}/token",service="s"'
            self._say(401, b"{}", {"WWW-Authenticate": realm})
        elif self.path.endswith("/busy"):
            self._say(429, b"{}", {"Retry-After": "999"})
        else:
            kind, body = HELD.get("/".join(self.path.split("/")[-2:]), ("", b""))
            self._say(200 if kind else 404, body, {"Content-Type": kind})

    def _say(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for key, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def server() -> Iterator[str]:
    class Handler(_Registry):
        asked: list[str] = []  # noqa: RUF012  # a class a test

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as held:
        thread = threading.Thread(target=held.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield f"127.0.0.1:{held.server_port}"
        held.shutdown()
        thread.join()


def logged_in(folder: Path, **config: Any) -> dict[str, str]:
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return {"DOCKER_CONFIG": str(folder), "HOME": str(folder)}


def auth(registry: str, user: str = "me", secret: str = "secret") -> dict[str, Any]:
    return {"auths": {registry: {"auth": base64.b64encode(f"{user}:{secret}".encode()).decode()}}}


BOTH = {
    "linux/amd64": Platform(sha(MANIFEST), sha(CONFIG)),
    "linux/arm64/v8": Platform(sha(ARM), "sha256:" + "5" * 64),
}


def test_an_index_gives_every_platform_and_no_attestation(server: str, tmp_path: Path) -> None:
    found = registry.resolve(parse_reference(f"{server}/a/b:multi"), environ=logged_in(tmp_path, **auth(server)))
    assert found == Resolved(sha(INDEX), BOTH)


def test_one_manifest_says_its_platform_in_its_config(server: str, tmp_path: Path) -> None:
    found = registry.resolve(parse_reference(f"{server}/a/b:one"), environ=logged_in(tmp_path, **auth(server)))
    assert found == Resolved(sha(MANIFEST), {"linux/amd64": Platform(sha(MANIFEST), sha(CONFIG))})


def test_an_identity_token_is_exchanged(server: str, tmp_path: Path) -> None:
    environ = logged_in(tmp_path, auths={server: {"identitytoken": "idtoken"}})
    assert registry.resolve(parse_reference(f"{server}/a/b:multi"), environ=environ).digest == sha(INDEX)


@pytest.mark.parametrize("store", ["credsStore", "credHelpers"])
def test_a_credential_helper_is_asked(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: str) -> None:
    helper = tmp_path / "docker-credential-lab"
    helper.write_text(
        f'#!/bin/sh\n[ "$1" = get ] && read -r at\n[ "$at" = "{server}" ] || {{ echo "not found"; exit 1; }}\n'
        'echo \'{"ServerURL": "x", "Username": "me", "Secret": "secret"}\'\n',
        encoding="utf-8",
    )
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    environ = logged_in(tmp_path, **{store: "lab" if store == "credsStore" else {server: "lab"}})
    assert login(server, environ) == Login("me", "secret")
    assert login("other:1", environ) is None
    assert registry.resolve(parse_reference(f"{server}/a/b:multi"), environ=environ).digest == sha(INDEX)


def test_a_helper_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(BeamdeployError, match=r"helper nosuch gave no login to a\.b: it is not installed"):
        login("a.b", logged_in(tmp_path, credsStore="nosuch"))


def test_a_login_never_shows_its_secret() -> None:
    assert "secret" not in repr(Login("me", "secret"))


@pytest.mark.parametrize(
    ("tag", "config", "exit", "what"),
    [
        ("one", {}, FAILED, "does not let us read {server}/a/b: nobody is logged in, and it is not enough (HTTP 401)"),
        ("one", {"secret": "wrong"}, FAILED, "the login of me is not enough (HTTP 401)"),
        ("absent", {"secret": "secret"}, FAILED, "the registry has no {server}/a/b:absent"),
        ("busy", {"secret": "secret"}, FAILED, "gives no more for now (HTTP 429)"),
        ("old", {"secret": "secret"}, FAILED, "of a kind that docker no longer pulls"),
    ],
)
def test_each_refusal_is_said_in_its_own_words(
    server: str, tmp_path: Path, tag: str, config: dict[str, str], exit: int, what: str
) -> None:
    environ = logged_in(tmp_path, **(auth(server, **config) if config else {}))
    with pytest.raises(HostError) as refused:
        registry.resolve(parse_reference(f"{server}/a/b:{tag}"), environ=environ)
    assert what.format(server=server) in refused.value.problems[0].what
    assert (refused.value.exit, bool(refused.value.problems[0].remedy)) == (exit, True)


def test_a_registry_that_is_not_there_is_unreachable(tmp_path: Path) -> None:
    with pytest.raises(HostError) as refused:
        registry.resolve(parse_reference("127.0.0.1:9/a/b:c"), environ=logged_in(tmp_path))
    assert refused.value.exit == UNREACHABLE
    assert "cannot be reached: Connection refused" in refused.value.problems[0].what


def test_plain_http_is_only_for_loopback_and_what_is_named(tmp_path: Path) -> None:
    def base(name: str, *insecure: str) -> str:
        return repository_of(parse_reference(name), insecure, logged_in(tmp_path)).base

    assert base("127.0.0.1:5000/a:b") == "http://127.0.0.1:5000"
    assert base("localhost:5000/a:b") == "http://localhost:5000"
    assert base("10.0.0.1:5000/a:b") == "https://10.0.0.1:5000"
    assert base("10.0.0.1:5000/a:b", "10.0.0.1:5000") == "http://10.0.0.1:5000"
    assert base("10.0.0.1:5000/a:b", "10.0.0.0/8") == "http://10.0.0.1:5000"
    assert base("reg.lan/a:b", "reg.lan") == "http://reg.lan"


def test_docker_hub_has_its_own_address_and_library(tmp_path: Path) -> None:
    at = repository_of(parse_reference("debian:12"), (), logged_in(tmp_path))
    assert (at.base, at.name) == ("https://registry-1.docker.io", "library/debian")
    at = repository_of(
        parse_reference("docker.io/a/b:1"), (), logged_in(tmp_path, **auth("https://index.docker.io/v1/"))
    )
    assert (at.name, at.login) == ("a/b", Login("me", "secret"))


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    checkpoint.write_target(tmp_path / "hub" / "o" / "n")
    (tmp_path / "hub/o/n/README.md").write_text("a card", encoding="utf-8")
    (tmp_path / "hub/o/n/.gitattributes").write_text("x", encoding="utf-8")
    with serve(tmp_path / "hub") as held:
        yield held


def test_a_hub_gives_every_file_that_an_engine_reads(hub: Hub) -> None:
    folder = fetch_folder(Source("o/n"), {"HF_ENDPOINT": hub.url})
    files = hub.files("o/n")
    assert (folder.source, folder.revision) == ("hf://o/n", hub.commit("o/n"))
    assert set(folder.files) == set(files) - {"README.md", ".gitattributes"}
    for name, one in folder.files.items():
        content = files[name].read_bytes()
        assert (one.size, one.sha256) == (len(content), hashlib.sha256(content).hexdigest())


def test_large_files_are_not_fetched_to_know_their_hash(hub: Hub) -> None:
    fetch_folder(Source("o/n"), {"HF_ENDPOINT": hub.url})
    assert not any(".safetensors" in line and "index" not in line for line, _ in hub.seen)


def test_the_token_goes_to_the_hub_and_not_to_its_storage(hub: Hub) -> None:
    hub.token = "hf_secretsecret"
    fetch_folder(Source("o/n"), {"HF_ENDPOINT": hub.url, "HF_TOKEN": hub.token})
    web.ask(f"{hub.url}/o/n/resolve/main/model-00001-of-00003.safetensors", authorization=f"Bearer {hub.token}")
    assert {given for line, given in hub.seen if "/storage/" not in line} == {f"Bearer {hub.token}"}
    assert [given for line, given in hub.seen if "/storage/" in line] == [None]


def test_a_token_is_found_where_hf_keeps_it(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("hf_filed\n", encoding="utf-8")
    assert token({"HF_HOME": str(tmp_path)}) == "hf_filed"
    assert token({"HF_HOME": str(tmp_path), "HF_TOKEN": "hf_said"}) == "hf_said"
    assert token({"HOME": str(tmp_path)}) is None


@pytest.mark.parametrize(
    ("refusal", "what", "remedy"),
    [
        ((401, "GatedRepo"), "is gated", "ask for access on"),
        ((403, ""), "is gated", "HF_TOKEN"),
        ((401, "RepoNotFound"), "the hub has no hf://o/n, or hides it (no token was sent", "check the name"),
        ((404, "RevisionNotFound"), "has no such revision", "check what follows @"),
        ((429, ""), "gives no more for now", "wait some minutes"),
        ((407, ""), "the proxy wants a login", "https_proxy"),
        ((500, ""), "answered HTTP 500", "HF_ENDPOINT"),
    ],
    ids=str,
)
def test_each_refusal_of_a_hub_has_its_remedy(hub: Hub, refusal: tuple[int, str], what: str, remedy: str) -> None:
    hub.refusal = refusal
    with pytest.raises(HostError) as refused:
        fetch_folder(Source("o/n"), {"HF_ENDPOINT": hub.url})
    assert (what in refused.value.problems[0].what, remedy in refused.value.problems[0].remedy) == (True, True)


def test_a_hub_that_cannot_be_reached_says_why_and_through_what(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, proxy, said in (
        ("127.0.0.1:9", "", "Connection refused"),
        ("hub.invalid", "", "ame or service not known"),
    ):
        monkeypatch.setenv("http_proxy", proxy)
        with pytest.raises(HostError) as refused:
            fetch_folder(Source("o/n"), {"HF_ENDPOINT": f"http://{name}"})
        assert refused.value.exit == UNREACHABLE and said in refused.value.problems[0].what
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with pytest.raises(HostError, match=r"through the proxy 127\.0\.0\.1"):
        fetch_folder(Source("o/n"), {"HF_ENDPOINT": "http://hub.invalid"})


def test_sources_are_read() -> None:
    assert parse_source("hf://a/b@c") == Source("a/b", "c")
    assert parse_source("hf://a/b") == Source("a/b")
    assert parse_source("/srv/x") is None and parse_source(None) is None
