"""An open store: the client, the keys of its namespace, calls of Lua scripts by name, and decoded answers.

The header of each script lists its keys and arguments in order. The script finds them by these names, in the
tables ``keys`` and ``args``. Further ones (``...``) begin at ``KEYS[first_key]`` and ``ARGV[first_arg]``.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property, lru_cache, partial
from hashlib import sha1
from importlib.resources import files
from itertools import islice
from typing import Any, TypeVar

from redis.client import Pipeline
from redis.exceptions import NoScriptError, RedisError

from celery_catchup.config.redis_urls import CREDENTIAL_PROVIDER
from celery_catchup.model import Instant, RunState, to_datetime
from celery_catchup.store.connection import connection_of, encoded
from celery_catchup.store.keys import Keys

AT_ONCE = 500
"""Entries that one command reads or writes."""
_STATES = tuple(RunState)  # compared, not hashed: a damaged record may hold a list
_LAST_INSTANT = 253_402_300_799_999  # the end of the year 9999
NUMBER_ERRORS = (TypeError, ValueError, OverflowError)
"""What a conversion of a stored value to a number raises."""

Item = TypeVar("Item", bound=Hashable)
Part = TypeVar("Part")

_FOLDER = files("celery_catchup.store") / "lua"
_MORE = "..."
"""In a header: any number of further keys or arguments."""


@dataclass(frozen=True)
class Script:
    """A script: its text, and the names of its keys and arguments in order."""

    name: str
    text: str
    keys: tuple[str, ...]
    args: tuple[str, ...]

    @cached_property
    def sha(self) -> str:
        """The digest by which the server knows the script."""
        return sha1(self.text.encode(), usedforsecurity=False).hexdigest()

    def positions(self, given: Mapping[str, Any]) -> list[Any]:
        """Return the arguments in the order of the header, "" for None; refuse other names."""
        if set(given) != set(self.args):
            raise TypeError(f"{self.name}.lua takes {self.args}, got {tuple(given)}")
        return ["" if given[name] is None else given[name] for name in self.args]


@lru_cache(maxsize=1)
def all_scripts() -> Mapping[str, Script]:
    """Read every script of the store."""
    names = sorted(file.name.removesuffix(".lua") for file in _FOLDER.iterdir() if file.name.endswith(".lua"))
    return {name: _read(name) for name in names if name != "library"}


def _read(name: str) -> Script:
    """Read a script; the tables of its names and the shared library come first."""
    own = (_FOLDER / f"{name}.lua").read_text(encoding="utf-8")
    library = (_FOLDER / "library.lua").read_text(encoding="utf-8")
    keys, args = _listed(own, "KEYS"), _listed(own, "ARGV")
    first = f"local first_key, first_arg = {len(keys) + 1}, {len(args) + 1}"
    tables = (_table("keys", "KEYS", keys), _table("args", "ARGV", args), first)
    return Script(name, "\n".join((*tables, library, own)), keys, args)


def _listed(text: str, what: str) -> tuple[str, ...]:
    """Return the names after ``-- KEYS`` or ``-- ARGV``; commas separate several on a line."""
    lines = re.findall(rf"^-- {what} ([\w.]+(?:, [\w.]+)*)", text, re.MULTILINE)
    return tuple(name for line in lines for name in line.split(", ") if name != _MORE)


def _table(name: str, values: str, names: tuple[str, ...]) -> str:
    fields = ", ".join(f"{one} = {values}[{number}]" for number, one in enumerate(names, 1))
    return f"local {name} = {{ {fields} }}"


@dataclass(frozen=True)
class Store:
    """One namespace of a Redis database."""

    client: Any = field(repr=False)  # a `Redis`, whose annotations mix two kinds of answers
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
        script, given = self._arranged(name, args, entry, lane, more_keys, more_args)
        try:
            return self.client.evalsha(script.sha, *given)
        except NoScriptError:
            return _call_unknown(self.client, script, given)

    def start(
        self,
        name: str,
        args: Mapping[str, object],
        *,
        entry: str = "",
        lane: str | None = None,
        more_keys: Iterable[str] = (),
        more_args: Iterable[str | int] = (),
    ) -> StartedCall:
        """Send what `call` sends, and return before the script has answered."""
        script, given = self._arranged(name, args, entry, lane, more_keys, more_args)
        return StartedCall(self.client, script, given)

    def send(
        self,
        name: str,
        args: Mapping[str, object],
        *,
        entry: str = "",
        lane: str | None = None,
        more_args: Sequence[str | int] = (),
    ) -> Callable[[], Any]:
        """Send the call of an idempotent script, and return the function that waits for its answer.

        When the answer does not come, or is an error, the call is made again.
        """
        head, script = self._head(name, entry, entry if lane is None else lane)
        again = partial(self.call, name, args, entry=entry, lane=lane, more_args=more_args)
        values = (*self._values(script, args), *more_args)
        command = b"*%d\r\n%b%b" % (3 + len(script.keys) + len(values), head, encoded(values))
        connection = self._kept.take()
        try:
            connection.send_packed_command([command])
        except BaseException as error:
            self._kept.give_back(connection)
            if isinstance(error, (RedisError, OSError)):
                return again
            raise

        def answer() -> Any:
            try:
                found = connection.read_response()
            except BaseException as error:
                self._kept.give_back(connection)
                if isinstance(error, (RedisError, OSError)):
                    return again()
                raise
            self._kept.keep(connection)
            return found

        return answer

    @cached_property
    def _kept(self) -> KeptConnections:
        return KeptConnections(self.client)

    @cached_property
    def _head(self) -> Callable[[str, str, str], tuple[bytes, Script]]:
        """Encode the keys of a call and what is before them, which is the same for all runs of an entry."""

        @lru_cache(maxsize=1024)
        def head(name: str, entry: str, lane: str) -> tuple[bytes, Script]:
            script = all_scripts()[name]
            keys = [self.keys.named(key, entry=entry, lane=lane) for key in script.keys]
            return encoded(("EVALSHA", script.sha, len(keys), *keys)), script

        return head

    def _arranged(
        self,
        name: str,
        args: Mapping[str, object],
        entry: str,
        lane: str | None,
        more_keys: Iterable[str] = (),
        more_args: Iterable[str | int] = (),
    ) -> tuple[Script, list[Any]]:
        """Return a script, and what follows it in the command: keys and arguments."""
        script = all_scripts()[name]
        lane = entry if lane is None else lane
        keys = [*(self.keys.named(key, entry=entry, lane=lane) for key in script.keys), *more_keys]
        return script, [len(keys), *keys, *self._values(script, args), *more_args]

    def _values(self, script: Script, args: Mapping[str, object]) -> list[Any]:
        return script.positions({"db": self.db, **args} if "db" in script.args else args)


class StartedCall:
    """The call of a script whose answer was not read yet."""

    def __init__(self, client: Any, script: Script, given: list[Any]) -> None:
        self._client, self._script, self._given = client, script, given
        self._sent = client.send("EVALSHA", script.sha, *given)

    def is_answered(self) -> bool:
        """Tell whether `answer` will not wait."""
        return bool(self._sent.is_answered())

    def answer(self) -> Any:
        """Wait for the answer, once."""
        try:
            return self._sent.answer()
        except NoScriptError:
            return _call_unknown(self._client, self._script, self._given)

    def drop(self) -> None:
        """Give up the answer; the outcome stays unknown."""
        self._sent.drop()


def _call_unknown(client: Any, script: Script, given: list[Any]) -> Any:
    """Call a script that the server did not know (after a restart or SCRIPT FLUSH), so that nothing ran."""
    return client.eval(script.text, *given)


class KeptConnections:
    """Connections of a client's pool that stay taken between two commands. Thread-safe.

    To take a connection from the pool and to release it costs more than to send a command over it. Only for
    commands that may be repeated: no connection is tested before it is used.
    """

    def __init__(self, client: Any) -> None:
        self._pool = client.connection_pool
        # The pool authenticates connections again when they are released, before their token expires.
        self._keeps = self._pool.connection_kwargs.get(CREDENTIAL_PROVIDER) is None
        self._pid, self._free = os.getpid(), list[Any]()

    def take(self) -> Any:
        """Return a connection that no other thread uses until it is kept or given back."""
        if self._pid != os.getpid():  # a forked child must not use the connections of its parent
            self._pid, self._free = os.getpid(), []
        try:
            return self._free.pop()
        except IndexError:
            pass
        return connection_of(self._pool)

    def keep(self, connection: Any) -> None:
        """Keep a connection whose answers have been read, for the next command."""
        if self._keeps:
            self._free.append(connection)
        else:
            self._pool.release(connection)

    def give_back(self, connection: Any) -> None:
        """Close a connection that failed: the pool knows where the server is now."""
        connection.disconnect()
        self._pool.release(connection)


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

    def _fields(self, key: str, names: Iterable[Item]) -> dict[Item, Any]:
        """Read these fields of a hash; None for missing ones."""
        wanted = list(dict.fromkeys(names))
        return dict(zip(wanted, self._client.hmget(key, wanted), strict=True)) if wanted else {}


def portions(items: Iterable[Part], size: int = AT_ONCE) -> Iterator[list[Part]]:
    """Yield the items in lists of at most ``size``."""
    rest = iter(items)
    while some := list(islice(rest, size)):
        yield some


# -- decoding: a record that this package cannot have written counts as missing ------------------


def read_json(text: bytes | str | None) -> dict[str, Any] | None:
    """Decode a stored mapping; None if it is missing or unreadable."""
    try:
        found = json.loads(text or b"null")
    except (ValueError, RecursionError):  # also bytes that are not text
        return None
    return found if isinstance(found, dict) else None


def read_run(text: bytes | str | None) -> dict[str, Any] | None:
    """Decode a run of the ledger; None if it is missing or unreadable."""
    run = read_json(text)
    if run is None or run.get("state") not in _STATES or not isinstance(run.get("entry"), str):
        return None
    numbers = (run.get("slot"), run.get("schedule", 0), run.get("attempt"))
    return run if all(isinstance(number, int | float) and is_instant(number) for number in numbers) else None


_SPAN = ("schedule", "first", "last", "count", "reason", "run_id", "epoch", "busy")


def read_span(text: bytes | str) -> dict[str, Any] | None:
    """Decode a span of skipped slots; None if it is unreadable. It is a list, short enough for the server to
    pack it tightly; version 0.1 stored a mapping."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    span = dict(zip(_SPAN, found, strict=False)) if isinstance(found, list) else read_json(text) or {}
    span["run_id"] = span.get("run_id") or None
    numbers = [span.get(name) for name in ("first", "last", "count", "schedule")]
    return span if all(isinstance(number, int) and is_instant(number) for number in numbers) else None


def span_text(span: Mapping[str, Any]) -> str:
    """Encode a span of skipped slots; `read_span` decodes it."""
    values = {"run_id": "", "epoch": 0, "busy": 0} | {k: v for k, v in span.items() if v is not None}
    return json.dumps([values[name] for name in _SPAN], separators=(",", ":"))


def is_instant(number: float) -> bool:
    """Whether a number can be converted to a time; one that is not finite cannot."""
    return -_LAST_INSTANT <= number <= _LAST_INSTANT


def texts(answer: Mapping[bytes, bytes]) -> dict[str, str]:
    """Decode a hash."""
    return {name.decode(errors="replace"): value.decode(errors="replace") for name, value in answer.items()}


def stored_instant(value: Any) -> Instant | None:
    """Return the stored instant; None if it is missing, not a number, or out of range."""
    if isinstance(value, str) and value.isdecimal() and len(value) < 20:
        value = int(value)
    return int(value) if isinstance(value, int | float) and is_instant(value) else None


def stored_time(value: Any) -> datetime | None:
    """Return the stored instant as a datetime in UTC."""
    instant = stored_instant(value)
    return None if instant is None else to_datetime(instant)


def stored_length(milliseconds: float | None) -> timedelta | None:
    """Return the stored length; None if it is missing, not a number, or out of range."""
    found = stored_instant(milliseconds)
    return None if found is None else timedelta(milliseconds=found)


def time_between(begin: Any, end: Any) -> timedelta | None:
    """Return how much time passed between two stored instants; None if one is missing."""
    first, last = stored_instant(begin), stored_instant(end)
    return None if first is None or last is None else timedelta(milliseconds=last - first)
