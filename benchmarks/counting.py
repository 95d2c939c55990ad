"""A proxy that counts: round trips and bytes between a client and the server."""

from __future__ import annotations

import selectors
import socket
import threading
from dataclasses import dataclass
from types import TracebackType
from urllib.parse import urlsplit

_CHUNK = 1 << 16


@dataclass(frozen=True)
class Traffic:
    """What has passed so far; a round trip is a question, of however many commands, and its answer."""

    trips: int = 0
    bytes: int = 0

    def __sub__(self, other: Traffic) -> Traffic:
        return Traffic(self.trips - other.trips, self.bytes - other.bytes)


class CountingProxy:
    """Stands between clients and a server, in a thread of this process.

    An answer is counted before the client sees it, so what a call has cost is known when it returns.
    """

    def __init__(self, url: str) -> None:
        there = urlsplit(url)
        self._server = (there.hostname or "127.0.0.1", there.port or 6379)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}{there.path}"
        self._selector = selectors.DefaultSelector()
        self._partner: dict[socket.socket, socket.socket] = {}
        self._asking: dict[socket.socket, bool] = {}
        self._trips = self._bytes = 0
        self._over = False
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> CountingProxy:
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over = True
        self._thread.join()
        for one in (self._listener, *self._partner):
            one.close()
        self._selector.close()

    def so_far(self) -> Traffic:
        return Traffic(self._trips, self._bytes)

    def _serve(self) -> None:
        while not self._over:
            for key, _ in self._selector.select(0.05):
                if key.fileobj is self._listener:
                    self._accept()
                elif isinstance(key.fileobj, socket.socket) and key.fileobj in self._partner:
                    self._forward(key.fileobj)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        server = socket.create_connection(self._server)
        self._partner |= {client: server, server: client}
        self._asking[client] = False
        for one in (client, server):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._selector.register(one, selectors.EVENT_READ)

    def _forward(self, one: socket.socket) -> None:
        partner = self._partner[one]
        try:
            data = one.recv(_CHUNK)
            self._count(one, partner, len(data))
            partner.sendall(data)
        except OSError:
            data = b""
        if not data:
            for end in (one, partner):
                self._selector.unregister(end)
                end.close()
                del self._partner[end]
                self._asking.pop(end, None)

    def _count(self, one: socket.socket, partner: socket.socket, size: int) -> None:
        self._bytes += size
        if one in self._asking:
            self._trips += size > 0 and not self._asking[one]
            self._asking[one] = True
        else:
            self._asking[partner] = False
