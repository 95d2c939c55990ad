"""A real Flower in this process, in a thread of its own, on a free port."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message
from types import SimpleNamespace
from typing import Any

from flower.app import Flower
from flower.options import default_options
from flower.urls import settings
from tornado.httpserver import HTTPServer
from tornado.ioloop import IOLoop
from tornado.netutil import bind_sockets

import celery_catchup.flower  # noqa: F401 — mounts the tab

USER, PASSWORD = "ada", "secret:with:colons"
BASIC = "Basic " + b64encode(f"{USER}:{PASSWORD}".encode()).decode()
SIGNED = {"Authorization": BASIC}
SCRIPT = {**SIGNED, "X-Requested-With": "a test"}
"""Headers of a script that changes something."""


@dataclass
class Answer:
    """A response."""

    status: int
    headers: Message
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Site:
    """A running Flower, and requests to it."""

    port: int
    prefix: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    api: str = "/api/catchup/v1"

    def ask(
        self, path: str, *, method: str = "GET", body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        sent = dict(self.headers if headers is None else headers)
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        if body is not None:
            sent.setdefault("Content-Type", "application/json")
        try:
            connection.request(method, self.prefix + path, body=data, headers=sent)
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    def get(self, path: str, **options: Any) -> Answer:
        return self.ask(self.api + path, **options)

    def post(self, path: str, body: Any = None, **options: Any) -> Answer:
        return self.ask(self.api + path, method="POST", body={} if body is None else body, **options)


@contextmanager
def flower(app: Any, *, headers: Mapping[str, str] = SCRIPT, **given: Any) -> Iterator[Site]:
    """Start Flower for an app, with authentication unless the options say otherwise."""
    options = {option.name.replace("-", "_"): option.value() for option in default_options._options.values()}
    options |= {"basic_auth": [f"{USER}:{PASSWORD}"], "read_only": False, **given}
    ready, stop = threading.Event(), {}

    def serve() -> None:
        asyncio.set_event_loop(asyncio.new_event_loop())
        loop = IOLoop.current()
        site = Flower(capp=app, options=SimpleNamespace(**options), io_loop=loop, **settings)
        server = HTTPServer(site)
        sockets = bind_sockets(0, "127.0.0.1")
        server.add_sockets(sockets)
        stop.update(port=sockets[0].getsockname()[1], loop=loop)
        loop.add_callback(ready.set)
        loop.start()
        server.stop()
        site.executor.shutdown()
        loop.close(all_fds=True)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    assert ready.wait(20)
    prefix = f"/{str(options['url_prefix'] or '').strip('/')}".rstrip("/")
    try:
        yield Site(stop["port"], prefix, headers)
    finally:
        stop["loop"].add_callback(stop["loop"].stop)
        thread.join(20)
