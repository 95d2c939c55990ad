"""A broker behind Sentinel is found, followed to its server, and given up in time."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from celery_catchup.dispatch import Dispatcher, DispatchError, Mode
from celery_catchup.dispatch.broker import TIMEOUT
from celery_catchup.store import connect
from celery_catchup.testing.embedded_server import EmbeddedServer, find_binary
from tests.integration.dispatching import an_app, an_entry

OPTIONS = {"master_name": "mymaster"}
PATIENCE = 15.0  # seconds for a process to start


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@pytest.fixture
def sentinel(valkey: EmbeddedServer, redis_url: str, tmp_path: Path) -> Iterator[int]:
    """The port of a Sentinel that watches the private server."""
    port, settings = free_port(), tmp_path / "sentinel.conf"
    watched = f"sentinel monitor mymaster 127.0.0.1 {valkey.port} 1"
    settings.write_text(f"port {port}\nbind 127.0.0.1\ndir {tmp_path}\n{watched}\n")
    process = subprocess.Popen([find_binary(), settings, "--sentinel"], stdout=subprocess.DEVNULL)
    try:
        wait_for(port)
        yield port
    finally:
        process.terminate()
        process.wait()


def wait_for(port: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            with redis.Redis(port=port) as client:
                client.ping()
            return
        except redis.ConnectionError:
            assert time.monotonic() < deadline, "the Sentinel did not start"
            time.sleep(0.02)


def test_broker_and_state_behind_one_sentinel_are_one_server(sentinel: int) -> None:
    dead = free_port()
    app = an_app(
        f"sentinel://127.0.0.1:{dead}/2;sentinel://127.0.0.1:{sentinel}/2", broker_transport_options=OPTIONS
    )
    with connect(f"sentinel://127.0.0.1:{sentinel}/0", sentinel_options=OPTIONS) as state:
        dispatcher = Dispatcher(app, state=state, state_db=0)
        template = dispatcher.template(an_entry(app), policy_entry="hourly")
        dispatcher.close()

    assert dispatcher.mode is Mode.ATOMIC
    assert (template.queue, template.db) == ("celery", 2)


def test_a_silent_sentinel_is_given_up_in_time(redis_url: str) -> None:
    with socket.socket() as silent, redis.Redis.from_url(redis_url) as state:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        app = an_app(f"sentinel://127.0.0.1:{silent.getsockname()[1]}/0", broker_transport_options=OPTIONS)
        dispatcher = Dispatcher(app, state=state, state_db=0)
        begun = time.monotonic()
        with pytest.raises(DispatchError, match="broker unreachable: No master found for 'mymaster'"):
            dispatcher.probe()

    assert time.monotonic() - begun < TIMEOUT + 1
