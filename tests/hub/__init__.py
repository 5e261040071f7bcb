"""A small model hub on this machine: the part of the Hugging Face Hub's API that the real `hf download` uses.

    with serve(folder) as hub:            # folder/OWNER/NAME/… are its repositories
        os.environ["HF_ENDPOINT"] = hub.url

Files that end in .safetensors are LFS objects, behind a redirect to storage; all others are plain git blobs.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit


@dataclass
class Hub:
    """What a test may change while it serves: the token it wants, the answer to everything, how soon it hangs up.

    `storage`: the address that large files are redirected to; the client tells it from the hub's own.
    `sent`: bytes of files sent so far. `seen`: the request lines and Authorization headers.
    """

    folder: Path
    url: str = ""
    storage: str = ""
    token: str | None = None
    refusal: tuple[int, str] | None = None
    drop_after: int | None = None
    pause: float = 0.0
    sent: int = 0
    seen: list[tuple[str, str | None]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def commit(self, name: str) -> str:
        """The commit of a repository: it changes with its files."""
        listed = "".join(f"{path}:{blob(path.read_bytes())}\n" for path in self.files(name).values())
        return hashlib.sha1(listed.encode()).hexdigest()

    def files(self, name: str) -> dict[str, Path]:
        """Path in the repository → file here."""
        root = self.folder / name
        return {str(path.relative_to(root)): path for path in sorted(root.rglob("*")) if path.is_file()}


def blob(content: bytes) -> str:
    """The git object id of a file."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@contextmanager
def serve(folder: Path, address: str = "127.0.0.1") -> Iterator[Hub]:
    """Serve the repositories below `folder` until the block ends."""
    hub = Hub(folder)

    class Handler(_Handler):
        held = hub

    with _listening(address, Handler) as hub.url, _listening(address, Handler) as hub.storage:
        yield hub


@contextmanager
def _listening(address: str, handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    server = ThreadingHTTPServer((address, 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://{address}:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    held: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer(head=True)

    def do_GET(self) -> None:
        self._answer(head=False)

    def _answer(self, *, head: bool) -> None:
        hub, parts = self.held, urlsplit(self.path)
        words = unquote(parts.path).strip("/").split("/")
        given = self.headers.get("Authorization")
        with hub.lock:
            hub.seen.append((f"{self.command} {self.path}", given))
        if words[0] == "storage":
            self._storage(words[1:], head=head)
        elif hub.refusal is not None:
            self._say(hub.refusal[0], {"X-Error-Code": hub.refusal[1]} if hub.refusal[1] else {}, b"{}", head=head)
        elif hub.token is not None and given != f"Bearer {hub.token}":
            self._say(401, {"X-Error-Code": "GatedRepo"}, b"{}", head=head)
        elif words[:2] == ["api", "models"] and len(words) >= 4:
            self._api(words[2:], parse_qs(parts.query), head=head)
        elif len(words) > 4 and words[2] == "resolve":
            self._resolve("/".join(words[:2]), words[3], "/".join(words[4:]), head=head)
        else:
            self._say(404, {}, b"{}", head=head)

    def _api(self, words: list[str], query: dict[str, list[str]], *, head: bool) -> None:
        hub, name = self.held, "/".join(words[:2])
        files = hub.files(name)
        if not files:
            self._say(401, {"X-Error-Code": "RepoNotFound"}, b"{}", head=head)
        elif words[2:3] == ["revision"] and words[3] not in ("main", hub.commit(name)):
            self._say(404, {"X-Error-Code": "RevisionNotFound"}, b"{}", head=head)
        elif words[2:3] == ["tree"]:
            self._json([_tree_entry(path, file) for path, file in files.items()], head=head)
        else:
            siblings = [
                _sibling(path, file) if "blobs" in query else {"rfilename": path} for path, file in files.items()
            ]
            self._json({"id": name, "sha": hub.commit(name), "siblings": siblings}, head=head)

    def _resolve(self, name: str, revision: str, path: str, *, head: bool) -> None:
        file, commit = self.held.files(name).get(path), self.held.commit(name)
        if file is None or revision not in ("main", commit):
            code = "EntryNotFound" if revision in ("main", commit) else "RevisionNotFound"
            self._say(404, {"X-Error-Code": code, "X-Repo-Commit": commit}, b"", head=head)
            return
        content = file.read_bytes()
        if not path.endswith(".safetensors"):
            self._content(content, {"ETag": f'"{blob(content)}"', "X-Repo-Commit": commit}, head=head)
            return
        tag = hashlib.sha256(content).hexdigest()
        headers = {"X-Linked-Etag": f'"{tag}"', "X-Linked-Size": str(len(content)), "X-Repo-Commit": commit}
        location = f"{self.held.storage}/storage/{name}/{path}"
        self._say(302, {**headers, "Location": location, "ETag": f'"{tag}"'}, b"", head=head)

    def _storage(self, words: list[str], *, head: bool) -> None:
        file = self.held.files("/".join(words[:2]))["/".join(words[2:])]
        content = file.read_bytes()
        self._content(content, {"ETag": f'"{hashlib.sha256(content).hexdigest()}"'}, head=head)

    def _content(self, content: bytes, headers: dict[str, str], *, head: bool) -> None:
        asked = self.headers.get("Range", "")
        start = int(asked.removeprefix("bytes=").partition("-")[0]) if asked.startswith("bytes=") else 0
        rest = content[start:]
        whole = {"Accept-Ranges": "bytes", **headers}
        if start:
            whole["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        self.send_response(206 if start else 200)
        for key, value in {**whole, "Content-Length": str(len(rest))}.items():
            self.send_header(key, value)
        self.end_headers()
        if not head:
            self._send(rest)

    def _send(self, rest: bytes) -> None:
        hub = self.held
        for at in range(0, len(rest), 65536):
            with hub.lock:
                if hub.drop_after is not None and hub.sent >= hub.drop_after:
                    self.close_connection = True
                    return
                hub.sent += len(rest[at : at + 65536])
            self.wfile.write(rest[at : at + 65536])
            if hub.pause:
                threading.Event().wait(hub.pause)

    def _json(self, value: object, *, head: bool) -> None:
        self._say(200, {"Content-Type": "application/json"}, json.dumps(value).encode(), head=head)

    def _say(self, status: int, headers: dict[str, str], body: bytes, *, head: bool) -> None:
        self.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(key, value)
        self.end_headers()
        if not head:
            self.wfile.write(body)


def _sibling(path: str, file: Path) -> dict[str, object]:
    content = file.read_bytes()
    entry: dict[str, object] = {"rfilename": path, "size": len(content), "blobId": blob(content)}
    if path.endswith(".safetensors"):
        entry["lfs"] = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 134}
    return entry


def _tree_entry(path: str, file: Path) -> dict[str, object]:
    content = file.read_bytes()
    entry: dict[str, object] = {"type": "file", "path": path, "size": len(content), "oid": blob(content)}
    if path.endswith(".safetensors"):
        entry["lfs"] = {"oid": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 134}
    return entry
