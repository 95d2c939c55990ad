"""A TCP proxy that a test can cut: a network that fails on demand."""

from __future__ import annotations

import contextlib
import random
import selectors
import socket
import threading
import time
from types import TracebackType


class Proxy:
    """Passes bytes between clients and one server, until it is cut or silenced.

    ``cut`` ends all connections and refuses new ones. ``silence`` keeps them, and new ones are
    accepted, but no byte gets through: packets vanish. ``mute`` lets requests through and loses the
    replies. ``slow`` delays everything. ``mend`` undoes all; what was written into the silence is lost.
    """

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._selector = selectors.DefaultSelector()
        self._partner: dict[socket.socket, socket.socket] = {}
        self._lock = threading.Lock()
        self._silent = self._muted = self._over = False
        self._delays = (0.0, 0.0)
        self._servers: set[socket.socket] = set()
        self._listener = self._listening(0)
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, name="proxy", daemon=True)
        self._thread.start()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over = True
        self._thread.join(5)
        with self._lock:
            self._drop_all()
            if self._listener.fileno() >= 0:
                self._listener.close()
            self._selector.close()

    def cut(self) -> None:
        """Nobody gets through, and everybody notices."""
        with self._lock:
            self._selector.unregister(self._listener)
            self._listener.close()
            self._drop_all()

    def silence(self) -> None:
        """Nobody gets through, and nobody is told."""
        with self._lock:
            self._silent = True

    def mute(self) -> None:
        """What is asked gets through, what is answered does not."""
        with self._lock:
            self._muted = True

    def slow(self, least: float, most: float) -> None:
        """All bytes take so many seconds on their way; those behind them wait."""
        with self._lock:
            self._delays = (least, most)

    def mend(self) -> None:
        """Everybody gets through again."""
        with self._lock:
            self._delays = (0.0, 0.0)
            if self._silent or self._muted:
                self._silent = self._muted = False
                self._drop_all()
            if self._listener.fileno() < 0:
                self._listener = self._listening(self.port)

    def _listening(self, port: int) -> socket.socket:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen()
        self._selector.register(listener, selectors.EVENT_READ)
        return listener

    def _serve(self) -> None:
        while not self._over:
            # A short wait: what the test changes meanwhile is seen soon.
            ready = self._selector.select(0.02)
            with self._lock:
                for key, _ in ready:
                    if isinstance(key.fileobj, socket.socket) and key.fileobj.fileno() >= 0:
                        self._handle(key.fileobj)

    def _handle(self, sock: socket.socket) -> None:
        try:
            if sock is self._listener:
                self._join(sock.accept()[0])
            elif sock in self._partner:
                data = sock.recv(1 << 16)
                if not data:
                    self._drop(sock)
                elif not (self._silent or (self._muted and sock in self._servers)):
                    time.sleep(random.uniform(*self._delays))
                    self._partner[sock].sendall(data)
        except OSError:
            self._drop(sock)

    def _join(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(self._target, timeout=5)
        except OSError:
            client.close()
            return
        self._servers.add(server)
        for one, other in ((client, server), (server, client)):
            self._partner[one] = other
            self._selector.register(one, selectors.EVENT_READ)

    def _drop(self, sock: socket.socket) -> None:
        for one in (sock, self._partner.get(sock)):
            if one is not None and self._partner.pop(one, None) is not None:
                self._servers.discard(one)
                with contextlib.suppress(KeyError, ValueError):
                    self._selector.unregister(one)
                one.close()

    def _drop_all(self) -> None:
        for sock in list(self._partner):
            if sock in self._partner:
                self._drop(sock)
