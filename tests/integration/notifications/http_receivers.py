"""A receiver of notifications that answers as a test wants."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Received:
    """One message."""

    headers: dict[str, str]
    body: bytes
    accepted: bool

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class HttpReceiver:
    """Answers with the next of ``answers``, an HTTP status or "hang"; then with 204."""

    port: int = 0
    answers: list[int | str] = field(default_factory=list)
    location: str = ""
    messages: list[Received] = field(default_factory=list)
    release: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook/SeCrEtPath"

    @property
    def accepted(self) -> list[Any]:
        return [one.json for one in self.messages if one.accepted]


@contextmanager
def receiving(*answers: int | str, port: int = 0) -> Iterator[HttpReceiver]:
    """Run a receiver on a port of this host."""
    receiver = HttpReceiver(answers=list(answers))

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            answer = receiver.answers.pop(0) if receiver.answers else 204
            accepted = isinstance(answer, int) and answer < 300
            receiver.messages.append(Received(dict(self.headers), body, accepted))
            if answer == "hang":
                receiver.release.wait(30)
                self.close_connection = True
                return
            self.send_response(int(answer))
            if receiver.location:
                self.send_header("Location", receiver.location)
            self.end_headers()

        do_GET = do_POST  # noqa: N815 - the name is the library's

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    receiver.port = server.server_address[1]
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield receiver
    finally:
        receiver.release.set()
        server.shutdown()
        server.server_close()
