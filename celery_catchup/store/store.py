"""An open store: the client, the keys of its namespace, and calls of Lua scripts by name."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from redis import Redis
from redis.client import Pipeline
from redis.exceptions import NoScriptError

from celery_catchup.store import scripts
from celery_catchup.store.keys import Keys

Item = TypeVar("Item", bound=Hashable)


@dataclass(frozen=True)
class Store:
    """One namespace of a Redis database."""

    client: Redis = field(repr=False)
    namespace: str
    db: int = 0
    former: str | None = None
    """The namespace that version 0.1 used, which ignored key prefixes; None if it is the same."""

    @cached_property
    def keys(self) -> Keys:
        """The names of its keys."""
        return Keys(self.namespace)

    def close(self) -> None:
        """Close the connections."""
        self.client.close()

    def call(
        self,
        name: str,
        args: Mapping[str, object],
        *,
        entry: str = "",
        lane: str | None = None,
        more_keys: Iterable[str] = (),
        more_args: Iterable[str | int] = (),
    ) -> Any:
        """Run a script with the keys that its header lists.

        ``entry`` and ``lane`` choose the keys of one entry and of one lane, which is the entry's own
        by default. The script gets "" for None, and the number of this database as ``db``. A lost
        reply leaves the outcome unknown: the caller decides whether to repeat the call.
        """
        script = scripts.all_scripts()[name]
        lane = entry if lane is None else lane
        keys = [*(self.keys.named(key, entry=entry, lane=lane) for key in script.keys), *more_keys]
        values = [*script.positions({"db": self.db, **args} if "db" in script.args else args), *more_args]
        try:
            return self.client.evalsha(script.sha, len(keys), *keys, *values)
        except NoScriptError:
            # Nothing ran: the server does not know the script (after a restart or SCRIPT FLUSH).
            return self.client.eval(script.text, len(keys), *keys, *values)


class StorePart:
    """Reads and writes one kind of record of a store. ``now_ms`` is for tests: 0 means the server's clock."""

    def __init__(self, store: Store, *, now_ms: int = 0) -> None:
        self._store, self._client, self._keys, self.now_ms = store, store.client, store.keys, now_ms

    def _ask(self, items: Iterable[Item], command: Callable[[Pipeline, Item], object]) -> dict[Item, Any]:
        """Send a command for each item, all in one round trip; return the answers by item."""
        asked = list(dict.fromkeys(items))
        with self._client.pipeline(transaction=False) as pipe:
            for item in asked:
                command(pipe, item)
            return dict(zip(asked, pipe.execute(), strict=True))
