"""Networks that fail on demand: a server in a namespace of its own behind packet rules, or a proxy."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import redis

from celery_catchup.testing.embedded_server import EmbeddedServer
from tests.acceptance.processes import until
from tests.acceptance.proxies import Proxy
from tests.integration.servers import binary_of
from tests.services import missing

PORT = 6379


class Network(Protocol):
    """The way to one server."""

    url: str
    faults: tuple[str, ...]

    def break_it(self, fault: str) -> None: ...

    def mend(self) -> None: ...


class Namespace:
    """A server at the other end of a virtual cable; the kernel drops the packets."""

    faults = ("all packets lost", "requests lost", "replies lost", "every twentieth packet lost")

    def __init__(self, folder: Path) -> None:
        self.name = f"catchup{os.getpid()}"
        third = os.getpid() % 250
        self._here, self._there = f"10.213.{third}.1", f"10.213.{third}.2"
        self.url = f"redis://{self._there}:{PORT}/0"
        self._folder = folder
        self._server: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        inside, ours, theirs = ("ip", "netns", "exec", self.name), f"c{os.getpid()}a", f"c{os.getpid()}b"
        _command("ip", "netns", "add", self.name)
        _command("ip", "link", "add", ours, "type", "veth", "peer", "name", theirs, "netns", self.name)
        _command("ip", "address", "add", f"{self._here}/30", "dev", ours)
        _command("ip", "link", "set", ours, "up")
        _command(*inside, "ip", "address", "add", f"{self._there}/30", "dev", theirs)
        _command(*inside, "ip", "link", "set", theirs, "up")
        settings = {
            "bind": self._there,
            "port": PORT,
            "dir": self._folder,
            "save": "",
            "protected-mode": "no",
        }
        words = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
        self._server = subprocess.Popen(
            [*inside, binary_of("valkey"), *words], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        until(self._answers, what="the server in the namespace")

    def _answers(self) -> bool:
        try:
            with redis.Redis.from_url(self.url, socket_timeout=1) as client:
                return bool(client.ping())
        except redis.RedisError:
            return False

    def break_it(self, fault: str) -> None:
        packets = ("-p", "tcp", "-j", "DROP")
        if fault == "every twentieth packet lost":
            packets = ("-m", "statistic", "--mode", "random", "--probability", "0.05", *packets)
        for chain in ("INPUT", "OUTPUT"):
            if (chain, fault) not in (("INPUT", "replies lost"), ("OUTPUT", "requests lost")):
                self._packets("-A", chain, *packets)

    def mend(self) -> None:
        self._packets("-F")

    def _packets(self, *words: str) -> None:
        _command("ip", "netns", "exec", self.name, "iptables", *words)

    def close(self) -> None:
        if self._server is not None:
            self._server.kill()
            self._server.wait()
        subprocess.run(["ip", "netns", "del", self.name], check=False, capture_output=True)


def _command(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(words)}: {done.stderr.strip()}")


@contextmanager
def a_namespace(folder: Path) -> Iterator[Network]:
    """Where the machine allows it: root, iproute2, iptables, and a kernel that has them."""
    for program in ("ip", "iptables"):
        if shutil.which(program) is None:
            missing("netns", f"there is no {program} on the PATH")
    namespace = Namespace(folder)
    try:
        try:
            namespace.start()
            namespace.break_it("every twentieth packet lost")
            namespace.mend()
        except OSError as error:
            missing("netns", f"this machine does not allow it ({error})")
        yield namespace
    finally:
        namespace.close()


class Proxied:
    """A way through a proxy: replies that are lost, packets that take long, connections that are cut."""

    faults = ("silence", "replies lost", "slow", "cut")

    def __init__(self, proxy: Proxy) -> None:
        self._proxy, self.url = proxy, f"redis://127.0.0.1:{proxy.port}/0"

    def break_it(self, fault: str) -> None:
        match fault:
            case "silence":
                self._proxy.silence()
            case "replies lost":
                self._proxy.mute()
            case "slow":
                self._proxy.slow(0.1, 0.3)
            case _:
                self._proxy.cut()

    def mend(self) -> None:
        self._proxy.mend()


@contextmanager
def a_proxied_way(server: EmbeddedServer) -> Iterator[Network]:
    with Proxy("127.0.0.1", server.port) as proxy:
        yield Proxied(proxy)
