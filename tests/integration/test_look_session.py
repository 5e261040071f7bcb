"""`look` through a real session, with HTTP questions answered over its channels at the same time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from beamdeploy.endpoint import Answer
from beamdeploy.inventory import Host
from beamdeploy.look import Question, look
from beamdeploy.remote import open_session
from tests import checkpoint


class Models(BaseHTTPRequestHandler):
    """Answers /v1/models; for /silent it ends without a word."""

    def do_GET(self) -> None:
        if self.path == "/silent":
            return
        body = b'{"object":"list"}'
        self.send_response(200 if self.path == "/v1/models" else 503)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: stderr is the test's."""


@contextmanager
def serving() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Models) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def test_a_look_brings_facts_and_answers(tmp_path: Path) -> None:
    checkpoint.target(tmp_path / "nvfp4")
    with open_session(Host("here", connection="local")) as session, serving() as port:
        paths = ("/v1/models", "/readiness", "/silent")
        question = Question(
            model_dir=str(tmp_path),
            folders=("nvfp4", "absent"),
            ports=(port,),
            docker=("docker-of-nobody",),
            http=(*(("127.0.0.1", port, path) for path in paths), ("127.0.0.1", 1, "/nobody")),
        )
        facts = look(session, question)
        again = look(session, question)
        # clock, free memory and free disk move between two looks
        assert replace(again, system=facts.system, disks=facts.disks) == facts
    assert facts.answers == {
        "/v1/models": Answer(200, '{"object":"list"}'),
        "/readiness": Answer(503, '{"object":"list"}'),
        "/silent": Answer(None, reason=facts.answers["/silent"].reason),
        "/nobody": Answer(None, reason=facts.answers["/nobody"].reason),
    }
    assert facts.answers["/silent"].reason.startswith(f"127.0.0.1:{port} gave no HTTP answer (")
    assert facts.answers["/nobody"].reason.startswith("nothing answers on 127.0.0.1:1 (")
    assert [listener.port for listener in facts.listeners] == [port]
    assert facts.weights["absent"] is None
    assert facts.weights["nvfp4"] is not None
    assert [problem.rule for problem in facts.blockers] == ["BD231"]
