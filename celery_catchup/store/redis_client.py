"""The client of redis-py with two additions: it follows MOVED redirects, and sends a command in one piece.

This file holds everything that depends on the inner workings of redis-py.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

from redis import Redis
from redis.client import Pipeline
from redis.exceptions import (
    ConnectionError,
    DataError,
    MovedError,
    ReadOnlyError,
    ResponseError,
    TimeoutError,
)

# Before redis-py 6 only its cluster client had an error class for it.
_MOVED = re.compile(r"\bMOVED \d+ (?P<host>\S*):(?P<port>\d+)")


class RedirectedRedis(Redis):
    """A client that follows its keys to the node of a Redis Cluster that owns them, and leaves a replica.

    A plain client is enough for a cluster: all keys of a namespace share a hash tag, so one node owns
    them all, and any other node answers with a redirect. A redirected command was not executed, so
    sending it again does not repeat it.
    """

    _home: tuple[str, int] | None = None

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Execute a command at the node that owns the keys."""
        return self.follow(partial(super().execute_command, *args, **options))

    def pipeline(self, transaction: Any = True, shard_hint: Any = None) -> Pipeline:  # noqa: FBT002
        """Return a pipeline that goes to the node that owns the keys."""
        pipe = _RedirectedPipeline(self.connection_pool, self.response_callbacks, transaction, shard_hint)
        pipe.owner = self
        return pipe

    def follow(self, call: Callable[[], Any]) -> Any:
        """Make a call; on a redirect, reconnect and make it again."""
        try:
            return call()
        except ReadOnlyError:
            # After a fail-over the host name resolves to the new primary, for new connections.
            self.connection_pool.disconnect(inuse_connections=False)
            raise
        except ResponseError as error:
            moved = _MOVED.search(str(error))
            if isinstance(error, MovedError):
                self._go(error.host, error.port)
            elif moved is not None:
                self._go(moved["host"], int(moved["port"]))
            else:
                raise
            return call()
        except (ConnectionError, TimeoutError):
            if self._home is not None:
                # The node may be gone for good; the first node knows the new owner of the keys.
                self._go(*self._home)
            raise

    def _go(self, host: str, port: int) -> None:
        pool = self.connection_pool
        place = pool.connection_kwargs
        self._home = self._home or (place.get("host", "localhost"), place.get("port", 6379))
        # A node that does not know its own name sends an empty one: the host stays the same.
        place.update(host=host or self._home[0], port=port)
        pool.disconnect(inuse_connections=False)
        pool.reset()


class _RedirectedPipeline(Pipeline):
    owner: RedirectedRedis

    def execute(self, *args: Any, **options: Any) -> Any:
        commands = list(self.command_stack)

        def send() -> Any:
            self.command_stack = list(commands)
            return super(_RedirectedPipeline, self).execute(*args, **options)

        return self.owner.follow(send)


class CommandPacker:
    """The ``command_packer`` of a connection: encode a command as one piece.

    redis-py sends a long command in pieces of some kilobytes, each with a system call. A commit of
    500 runs has half a megabyte; in one piece it arrives in less than half the time.
    """

    def pack(self, *args: object) -> list[bytes]:
        """Return the encoded command, as a list of one piece."""
        name, *rest = args
        words = name.encode().split() if isinstance(name, str) else [name]  # CONFIG GET is two words
        parts = [b"*%d\r\n" % (len(words) + len(rest))]
        for arg in (*words, *rest):
            data = arg.encode() if isinstance(arg, str) else _bytes(arg)
            parts.append(b"$%d\r\n%b\r\n" % (len(data), data))
        return [b"".join(parts)]


def _bytes(arg: object) -> bytes:
    if isinstance(arg, bytes | bytearray | memoryview):
        return bytes(arg)
    if isinstance(arg, int | float) and not isinstance(arg, bool):
        return repr(arg).encode()
    raise DataError(f"a command takes text, bytes and numbers, got {type(arg).__name__}")
