"""Servers as people run them: with passwords, TLS, Sentinels, as a cluster; and schedulers that use them."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import redis
from celery import Celery
from celery.schedules import crontab

from celery_catchup.beat.scheduler import Scheduler
from celery_catchup.testing import FakeClock
from celery_catchup.testing.embedded_server import EmbeddedServerError, find_binary
from tests.services import missing

PATIENCE = 20.0  # seconds for something that usually takes a few milliseconds
MASTER = "mymaster"


def until(happens: Callable[[], Any], *, what: str, patience: float = PATIENCE) -> Any:
    """Wait for it; what it was in the end."""
    deadline = time.monotonic() + patience
    while not (found := happens()):
        assert time.monotonic() < deadline, f"waited for {what}"
        time.sleep(0.02)
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


# -- one server ----------------------------------------------------------------------------------


def binary_of(kind: str) -> Path:
    """The server of a kind: ``valkey`` as the demo has it, or ``redis`` as the system has it."""
    found = shutil.which("redis-server")
    if kind == "redis":
        return Path(found) if found else missing("redis-server", "there is none on the PATH")
    try:
        return find_binary()
    except EmbeddedServerError as error:
        missing("valkey", str(error))


class Server:
    """One process with settings of the test's own. It listens on a port, and on a socket if told so."""

    def __init__(
        self, folder: Path, *, kind: str = "valkey", port: int | None = None, **settings: Any
    ) -> None:
        self.folder, self.kind, self.settings = folder, kind, settings
        self.port = free_port() if port is None else port
        self.process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def tls(self) -> bool:
        return "tls_port" in self.settings

    def start(self, *mode: str) -> None:
        """Return when it answers, be it with an error."""
        ports = {"port": 0, "tls-port": self.port} if self.tls else {"port": self.port}
        named = {name.replace("_", "-"): value for name, value in self.settings.items()}
        settings = {"bind": "127.0.0.1", "dir": self.folder, "save": "", **named, **ports}
        words = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [binary_of(self.kind), *mode, *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        until(self._answers, what=f"a server; see {self.folder / 'log'}")

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "log").read_text()[-2000:]
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def url(self, *, db: int = 0, user: str = "", password: str = "", options: str = "") -> str:
        login = f"{quote(user, safe='')}:{quote(password, safe='')}@" if user or password else ""
        scheme = "rediss" if self.tls else "redis"
        return f"{scheme}://{login}127.0.0.1:{self.port}/{db}{'?' + options if options else ''}"

    @contextmanager
    def admin(self, **options: Any) -> Iterator[redis.Redis]:
        """A client that may do everything."""
        with redis.Redis("127.0.0.1", self.port, socket_timeout=5, **options) as client:
            yield client

    def everything(self) -> dict[tuple[int, bytes], object]:
        """All that is stored, to be compared; a hash has another order of fields after a restart."""
        found: dict[tuple[int, bytes], object] = {}
        for db in range(3):
            with self.admin(db=db) as client:
                keys: Any = client.keys("*")
                for key in keys:
                    is_hash = client.type(key) == b"hash"
                    found[db, key] = client.hgetall(key) if is_hash else client.dump(key)
        return found


@contextmanager
def a_server(folder: Path, **settings: Any) -> Iterator[Server]:
    server = Server(folder, **settings)
    try:
        server.start()
        yield server
    finally:
        server.kill()


# -- an authority --------------------------------------------------------------------------------


class Authority:
    """Signs certificates with a key that lives as long as the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.certificate = folder / "authority.pem"
        self._openssl(
            *("req", "-x509", *_NEW_KEY, "-keyout", "authority.key", "-out", "authority.pem"),
            *("-subj", "/CN=An authority for a day", "-days", "1"),
        )

    def signed(self, name: str, *, host: str = "IP:127.0.0.1", days: int = 1) -> tuple[Path, Path]:
        """A certificate and its key."""
        self._openssl(
            *("req", *_NEW_KEY, "-keyout", f"{name}.key", "-out", f"{name}.csr"),
            *("-subj", f"/CN={name}", "-addext", f"subjectAltName={host}"),
        )
        self._openssl(
            *("x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.pem", "-days", str(days)),
            *("-CA", "authority.pem", "-CAkey", "authority.key", "-CAcreateserial"),
            *("-copy_extensions", "copy"),
        )
        return self.folder / f"{name}.pem", self.folder / f"{name}.key"

    def _openssl(self, *words: str) -> None:
        if shutil.which("openssl") is None:
            missing("openssl", "there is none on the PATH")
        done = subprocess.run(["openssl", *words], cwd=self.folder, capture_output=True, check=False)
        if done.returncode:
            missing("openssl", done.stderr.decode(errors="replace").splitlines()[-1])


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


@contextmanager
def a_tls_server(folder: Path, authority: Authority, **settings: Any) -> Iterator[Server]:
    """A server that speaks TLS only; its certificate is for 127.0.0.1 unless another is given."""
    certificate, key = settings.pop("certificate", None) or authority.signed("server")
    secured = {
        "tls_port": 0,
        "tls_cert_file": certificate,
        "tls_key_file": key,
        "tls_ca_cert_file": authority.certificate,
        "tls_auth_clients": "no",
    }
    server = Server(folder, kind="redis", **{**secured, **settings})
    try:
        try:
            server.start()
        except AssertionError as error:
            if "tls-" in str(error):
                missing("redis-server", "it was built without TLS")
            raise
        yield server
    finally:
        server.kill()


# -- Sentinels and clusters ----------------------------------------------------------------------


class Watched:
    """A primary, its replica, and the Sentinels that watch them."""

    def __init__(self, folder: Path, *, sentinels: int = 2) -> None:
        self.primary = Server(folder / "primary")
        self.replica = Server(folder / "replica", replicaof=f"127.0.0.1 {self.primary.port}")
        self.sentinels = [Server(folder / f"sentinel{number}") for number in range(sentinels)]

    @property
    def url(self) -> str:
        return ";".join(f"sentinel://127.0.0.1:{sentinel.port}" for sentinel in self.sentinels) + "/0"

    def start(self) -> None:
        self.primary.start()
        self.replica.start()
        for sentinel in self.sentinels:
            settings = sentinel.folder / "sentinel.conf"
            settings.write_text(
                f"sentinel monitor {MASTER} 127.0.0.1 {self.primary.port} 1\n"
                f"sentinel down-after-milliseconds {MASTER} 1000\n"
                f"sentinel failover-timeout {MASTER} 3000\n"
            )
            sentinel.settings = {}
            sentinel.start(str(settings), "--sentinel")
        until(self._know_each_other, what="Sentinels that know each other and the replica")

    def _know_each_other(self) -> bool:
        for sentinel in self.sentinels:
            with sentinel.admin() as client:
                state: Any = client.sentinel_master(MASTER)
            if state["num-slaves"] < 1 or state["num-other-sentinels"] < len(self.sentinels) - 1:
                return False
        return True

    def all_replicated(self) -> None:
        """Wait until the replica has everything."""
        with self.primary.admin() as client:
            assert client.wait(1, 5000) == 1

    def kill(self) -> None:
        for server in (*self.sentinels, self.replica, self.primary):
            server.kill()


class Cluster:
    """Three nodes that share the slots; every node has its own file of what it was given."""

    def __init__(self, folder: Path) -> None:
        self.nodes = [
            Server(
                folder / f"node{number}",
                cluster_enabled="yes",
                cluster_node_timeout=2000,
                cluster_port=free_port(),
                appendonly="yes",
            )
            for number in range(3)
        ]

    def start(self) -> None:
        parts = ((0, 5460), (5461, 10922), (10923, 16383))
        for node, (first, last) in zip(self.nodes, parts, strict=True):
            node.start()
            with node.admin() as client:
                client.execute_command("CLUSTER ADDSLOTSRANGE", first, last)
                if node is not self.nodes[0]:
                    first_node = self.nodes[0]
                    bus = first_node.settings["cluster_port"]
                    client.execute_command("CLUSTER MEET", "127.0.0.1", first_node.port, bus)
        until(self.agrees, what="a cluster that agrees")

    def agrees(self) -> bool:
        for node in self.nodes:
            with node.admin() as client:
                facts = client.execute_command("CLUSTER INFO")
                if facts["cluster_state"] != "ok" or facts["cluster_known_nodes"] != "3":
                    return False
        return True

    def owner(self, key: str) -> Server:
        """The node that has the key's slot."""
        slot = redis.crc.key_slot(key.encode())
        for node in self.nodes:
            with node.admin() as client:
                if client.execute_command("CLUSTER COUNTKEYSINSLOT", slot):
                    return node
        raise AssertionError(f"nobody has {key}")

    def move(self, key: str, *, to: Server) -> None:
        """Hand the key's slot, and all that is in it, over to another node."""
        slot, giver = redis.crc.key_slot(key.encode()), self.owner(key)
        with giver.admin() as old, to.admin() as new:
            ids = {
                node: client.execute_command("CLUSTER MYID").decode()
                for node, client in ((giver, old), (to, new))
            }
            new.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", ids[giver])
            old.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", ids[to])
            keys = old.execute_command("CLUSTER GETKEYSINSLOT", slot, 1000)
            old.execute_command("MIGRATE", "127.0.0.1", to.port, "", 0, 5000, "KEYS", *keys)
            for client in (new, old):
                client.execute_command("CLUSTER SETSLOT", slot, "NODE", ids[to])

    def kill(self) -> None:
        for node in self.nodes:
            node.kill()


# -- a scheduler ---------------------------------------------------------------------------------

HOURLY = {"task": "proj.etl", "schedule": crontab(minute="0")}
"""What the schedulers of these tests have to send; its policy catches up six hours at once."""


@contextmanager
def a_scheduler(url: str, clock: FakeClock, **conf: Any) -> Iterator[Scheduler]:
    """The scheduler itself, with Redis at ``url`` as broker and store, and a clock of the test's own."""
    app = Celery("proj", broker=url, set_as_current=False)
    app.conf.update(
        beat_schedule={"etl": HOURLY},
        catchup_entries={"etl": {"window": "6h", "overlap_policy": "allow"}},
        catchup_namespace="proj",
        result_expires=None,  # else Celery adds an entry of its own
    )
    app.conf.update(conf)
    kind = type("Scheduler", (Scheduler,), {"clock": clock})
    scheduler = kind(app)
    try:
        yield scheduler
    finally:
        scheduler.close()
        app.close()
