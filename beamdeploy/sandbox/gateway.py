"""The HTTP front of the stand-in engine: health, model list and chat, as TokenSpeed's gateway serves them."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from beamdeploy.sandbox.chat import Json, Model, Refused, read, reply, response, stream


class Drafted:
    """The counters of a drafter of which each step drafts 15 tokens and has 10 of them accepted."""

    def __init__(self, prefix: str = "tokenspeed") -> None:
        self._prefix = prefix
        self._lock = threading.Lock()
        self._steps = 0

    def add(self, tokens: int) -> None:
        """So many tokens were generated."""
        with self._lock:
            self._steps += -(-tokens // 11)

    @property
    def page(self) -> str:
        """As /engine_metrics or /metrics shows them."""
        counts = {"accepted": 10 * self._steps, "draft": 15 * self._steps}
        lines = (f"{self._prefix}:spec_decode_num_{name}_tokens_total {count}.0\n" for name, count in counts.items())
        return "".join(lines)


@dataclass(frozen=True)
class Front:
    """What the front knows. `hangs`: generation never returns. `unready`: why the readiness path answers 503, or "".

    `drafted`: None without a drafter, or where it is not counted. `engine`: whose paths are served. `warming`: whether
    it still warms up, when SGLang lists its models already.
    """

    model: Model
    api_key: str = ""
    hangs: bool = False
    unready: str = ""
    token_seconds: float = 0.0
    drafted: Drafted | None = None
    engine: str = "tokenspeed"
    warming: threading.Event | None = None


def ready(front: Front) -> tuple[int, Json]:
    """What /readiness says."""
    if front.warming is not None and front.warming.is_set():
        return 503, {"status": "not ready", "reason": "starting"}
    if front.unready:
        return 503, {"status": "not ready", "reason": front.unready}
    return 200, {"status": "ready", "healthy_workers": 1, "total_workers": 1}


def models(front: Front) -> Json:
    """What /v1/models says."""
    owner = "self" if front.engine == "tokenspeed" else front.engine
    entry = {"id": front.model.name, "object": "model", "created": 0, "owned_by": owner}
    return {"object": "list", "data": [entry]}


def page(front: Front, path: str) -> tuple[int, Json] | None:
    """The answer to a GET, or None for a path that is not served."""
    if path == READY.get(front.engine):
        return ready(front)
    if path == "/v1/models":
        # vLLM knows no other readiness
        return ready(front) if front.engine == "vllm" and front.unready else (200, models(front))
    if path in HEALTH[front.engine]:
        return 200, {"status": "ok"}
    return None


READY: Mapping[str, str] = {"tokenspeed": "/readiness", "sglang": "/ready"}
HEALTH: Mapping[str, tuple[str, ...]] = {
    "tokenspeed": ("/health", "/liveness", "/health_generate"),
    "vllm": ("/health", "/ping", "/version", "/load"),
    "sglang": ("/health", "/health_generate", "/server_info", "/model_info", "/get_server_info"),
}
METRICS: Mapping[str, str] = {"tokenspeed": "/engine_metrics"}


def serve(front: Front, host: str, port: int) -> ThreadingHTTPServer:
    """Answer at host:port in threads until `shutdown` is called. OSError: the port is taken."""
    server = ThreadingHTTPServer((host, port), _handler(front))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    return server


def _handler(front: Front) -> type[BaseHTTPRequestHandler]:
    answer = _Answer(front)

    # http.server wants a class with these methods; all that they do is in _Answer
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        do_GET = answer.get
        do_POST = answer.post

        def log_message(self, format: str, *args: object) -> None:
            """The gateway logs at `warn`: nothing for a request."""

    return Handler


@dataclass(frozen=True)
class _Answer:
    front: Front

    @property
    def get(self) -> Callable[[BaseHTTPRequestHandler], None]:
        def do(request: BaseHTTPRequestHandler) -> None:
            if request.path == METRICS.get(self.front.engine, "/metrics") and self.front.drafted is not None:
                _send_text(request, self.front.drafted.page)
                return
            # TokenSpeed's gateway lists its models to everybody
            if request.path.startswith("/v1/") and self.front.engine != "tokenspeed" and not self.may(request):
                _send(request, 401, {"error": "Unauthorized"})
                return
            found = page(self.front, request.path.partition("?")[0])
            if found is not None and request.path.startswith("/health_generate"):
                self.wait()
            _send(request, *(found or (404, {"error": {"message": "Not Found", "code": "not_found"}})))

        return do

    @property
    def post(self) -> Callable[[BaseHTTPRequestHandler], None]:
        def do(request: BaseHTTPRequestHandler) -> None:
            body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
            try:
                self.chat(request, body)
            except Refused as refused:
                _send(request, refused.status, refused.body)
            except (BrokenPipeError, ConnectionResetError):
                request.close_connection = True

        return do

    def may(self, request: BaseHTTPRequestHandler) -> bool:
        """Whether it has the key, or none is asked for."""
        return not self.front.api_key or request.headers.get("Authorization") == f"Bearer {self.front.api_key}"

    def wait(self) -> None:
        if self.front.hangs:
            threading.Event().wait()

    def chat(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        if not self.may(request):
            raise Refused(401, "Invalid or missing API key", "unauthorized")
        if request.path != "/v1/chat/completions":
            raise Refused(404, f"No route for {request.path}", "not_found")
        asked = read(body)
        said, created = reply(asked, self.front.model), int(time.time())
        self.wait()
        if self.front.drafted is not None:
            self.front.drafted.add(int(str(said.usage["completion_tokens"])))
        if asked.get("stream"):
            options = asked.get("stream_options")
            usage = isinstance(options, Mapping) and bool(options.get("include_usage"))
            self.send_events(request, stream(said, self.front.model, created, usage=usage))
        else:
            _send(request, 200, response(said, self.front.model, created))

    def send_events(self, request: BaseHTTPRequestHandler, events: Iterable[bytes]) -> None:
        request.send_response(200)
        request.send_header("Content-Type", "text/event-stream")
        request.send_header("Connection", "close")
        request.end_headers()
        for event in events:
            request.wfile.write(event)
            time.sleep(self.front.token_seconds)
        request.close_connection = True


def _send(request: BaseHTTPRequestHandler, status: int, body: Json) -> None:
    _send_bytes(request, status, "application/json", json.dumps(body).encode())


def _send_text(request: BaseHTTPRequestHandler, text: str) -> None:
    _send_bytes(request, 200, "text/plain; version=0.0.4", text.encode())


def _send_bytes(request: BaseHTTPRequestHandler, status: int, kind: str, body: bytes) -> None:
    request.send_response(status)
    request.send_header("Content-Type", kind)
    request.send_header("Content-Length", str(len(body)))
    request.end_headers()
    request.wfile.write(body)
