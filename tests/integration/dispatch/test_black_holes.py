"""A broker that falls silent in the middle of a conversation costs seconds, not the beat."""

from __future__ import annotations

import select
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

import kombu
import pytest
from greenlet import GreenletExit

from celery_catchup.dispatch import Dispatcher, DispatchError
from celery_catchup.dispatch.broker import TIMEOUT, Broker
from tests.integration.dispatching import a_dispatcher, an_app, an_entry, publish_run
from tests.integration.workers import ROOT
from tests.services import private_server

SLACK = 1.0  # seconds for everything but waiting, on a busy machine


class TrackedEntry:
    """A telephone line to a server that can go dead: nothing passes any more, nobody hangs up."""

    def __init__(self, port: int) -> None:
        self._there = port
        self._dead = threading.Event()
        self._over = threading.Event()
        self._ends: list[socket.socket] = []
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._door.getsockname()[1]
        self._thread = threading.Thread(target=self._carry, daemon=True)
        self._thread.start()

    def die(self) -> None:
        self._dead.set()

    def revive(self) -> None:
        self._dead.clear()

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        for end in (self._door, *self._ends):
            end.close()

    def _carry(self) -> None:
        other: dict[socket.socket, socket.socket] = {}
        while not self._over.is_set():
            if self._dead.is_set():
                self._over.wait(0.02)
                continue
            ready, _, _ = select.select([self._door, *other], [], [], 0.02)
            for end in ready:
                if end is self._door:
                    here, _ = self._door.accept()
                    there = socket.create_connection(("127.0.0.1", self._there))
                    other |= {here: there, there: here}
                    self._ends += [here, there]
                elif not self._dead.is_set():
                    self._pass_on(end, other)

    def _pass_on(self, end: socket.socket, other: dict[socket.socket, socket.socket]) -> None:
        with suppress(OSError):
            if words := end.recv(65536):
                other[end].sendall(words)
                return
        with suppress(OSError):
            other[end].shutdown(socket.SHUT_RDWR)
        other.pop(end, None)


@contextmanager
def a_line(url: str) -> Iterator[tuple[TrackedEntry, str]]:
    """The line, and the URL that leads through it."""
    port = urlsplit(url).port or 5672
    line = TrackedEntry(port)
    try:
        yield line, url.replace(f":{port}", f":{line.port}")
    finally:
        line.close()


def fails_in_time(dispatcher: Dispatcher, template: dict[str, object]) -> float:
    begun = time.monotonic()
    with pytest.raises(DispatchError, match="broker unreachable") as caught:
        publish_run(dispatcher, template)
    assert caught.value.temporary
    return time.monotonic() - begun


@pytest.mark.parametrize("declared", [True, False], ids=["while it confirms", "while it declares"])
def test_a_rabbitmq_that_falls_silent(rabbitmq_url: str, redis_url: str, declared: bool) -> None:
    queue = f"catchup-test-{uuid.uuid4().hex[:12]}"
    with a_line(rabbitmq_url) as (line, url):
        app = an_app(url, task_default_queue=queue)
        with a_dispatcher(app, redis_url) as dispatcher:
            template = vars(dispatcher.template(an_entry(app), policy_entry="hourly"))
            if declared:
                publish_run(dispatcher, template)
            else:
                dispatcher._broker.connected()
            line.die()

            taken = fails_in_time(dispatcher, template)

            line.revive()
            publish_run(dispatcher, template)
    with kombu.Connection(rabbitmq_url) as connection:
        # The one that was not confirmed may have arrived all the same.
        assert connection.default_channel.queue_delete(queue) >= 1
    assert taken < TIMEOUT + SLACK


IN_A_GREENLET = """
from gevent import monkey
monkey.patch_all()
import sys, time
from celery_catchup.dispatch.broker import Broker
from tests.integration.dispatching import an_app

broker = Broker(an_app(sys.argv[1]))
broker.connected()
print("connected", flush=True)
sys.stdin.readline()
publication = {
    "body": "W10=", "content_type": "application/json", "content_encoding": "utf-8", "headers": {},
    "exchange": "", "routing_key": "catchup-silent", "priority": None, "properties": {},
    "declare": [{"kind": "queue", "name": "catchup-silent"}], "timeout": None, "confirm_timeout": None,
}
begun = time.monotonic()
try:
    broker.publish(publication)
except Exception as error:
    print(type(error).__name__, time.monotonic() - begun, flush=True)
"""


def test_a_rabbitmq_that_falls_silent_does_not_hang_a_greenlet(rabbitmq_url: str) -> None:
    pytest.importorskip("gevent")
    with a_line(rabbitmq_url) as (line, url):
        command = [sys.executable, "-c", IN_A_GREENLET, url]
        with subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "connected\n"
            line.die()

            try:
                said, _ = process.communicate("go on\n", timeout=4 * TIMEOUT)
            finally:
                process.kill()

    error, taken = said.split()
    assert error == "DispatchError"
    assert float(taken) < TIMEOUT + SLACK


def test_an_interrupted_publish_does_not_use_its_connection_again(
    rabbitmq_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gevent's time limits are no exceptions that `except Exception` sees."""
    broker = Broker(an_app(rabbitmq_url))
    before = broker.connected()

    def interrupted(*_: object) -> None:
        raise GreenletExit

    monkeypatch.setattr("celery_catchup.dispatch.broker._publish", interrupted)
    with pytest.raises(GreenletExit):
        broker.publish({"exchange": "", "routing_key": "nowhere"})

    assert not before.connected
    assert broker.connection is not before
    broker.close()


def test_a_redis_that_falls_silent(redis_url: str) -> None:
    with private_server() as other, a_line(other.url()) as (line, url):
        app = an_app(url)
        with a_dispatcher(app, redis_url) as dispatcher:
            template = vars(dispatcher.template(an_entry(app), policy_entry="hourly"))
            publish_run(dispatcher, template)
            line.die()

            taken = fails_in_time(dispatcher, template)

            line.revive()
            publish_run(dispatcher, template)
    assert taken < TIMEOUT + SLACK


def test_closing_does_not_wait_for_a_silent_rabbitmq_for_long(rabbitmq_url: str, redis_url: str) -> None:
    with a_line(rabbitmq_url) as (line, url), a_dispatcher(an_app(url), redis_url) as dispatcher:
        dispatcher._broker.connected()
        line.die()
        begun = time.monotonic()

        dispatcher.close()

        assert time.monotonic() - begun < TIMEOUT + SLACK
