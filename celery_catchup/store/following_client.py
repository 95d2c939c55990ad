"""A client that follows its keys: to the node of a cluster that owns them, and away from a replica."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

from redis import Redis
from redis.client import Pipeline
from redis.exceptions import ConnectionError, MovedError, ReadOnlyError, ResponseError, TimeoutError

# Before redis-py 6 only its cluster client had a kind of error for it.
_MOVED = re.compile(r"\bMOVED \d+ (?P<host>\S*):(?P<port>\d+)")


class FollowingRedis(Redis):
    """A plain client, which is enough for a Redis Cluster: all keys of a namespace share a hash
    tag, so one node owns them all, and any other node says which.

    Nothing was executed where a command was sent away, so sending it again is no repetition.
    """

    _home: tuple[str, int] | None = None

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Execute it where the keys are."""
        return self.follow(partial(super().execute_command, *args, **options))

    def pipeline(self, transaction: Any = True, shard_hint: Any = None) -> Pipeline:  # noqa: FBT002
        """Commands that are sent together, to where the keys are."""
        pipe = _FollowingPipeline(self.connection_pool, self.response_callbacks, transaction, shard_hint)
        pipe.owner = self
        return pipe

    def follow(self, call: Callable[[], Any]) -> Any:
        """Make a call; when the keys are elsewhere, go there and make it again."""
        try:
            return call()
        except ReadOnlyError:
            # After a fail-over the host's name leads to the new primary, for new connections.
            self.connection_pool.disconnect(inuse_connections=False)
            raise
        except ResponseError as error:
            elsewhere = _owner(error)
            if elsewhere is None:
                raise
            self._go(*elsewhere)
            return call()
        except (ConnectionError, TimeoutError):
            if self._home is not None:
                # The node may be gone for good; who has the keys now is asked where we began.
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


class _FollowingPipeline(Pipeline):
    owner: FollowingRedis

    def execute(self, *args: Any, **options: Any) -> Any:
        commands = list(self.command_stack)

        def send() -> Any:
            self.command_stack = list(commands)
            return super(_FollowingPipeline, self).execute(*args, **options)

        return self.owner.follow(send)


def _owner(error: ResponseError) -> tuple[str, int] | None:
    """The node that the keys are said to be at."""
    if isinstance(error, MovedError):
        return error.host, error.port
    moved = _MOVED.search(str(error))
    return None if moved is None else (moved["host"], int(moved["port"]))
