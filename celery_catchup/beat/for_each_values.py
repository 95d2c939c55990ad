"""Ask functions of the app for the values of ``for_each``, outside the ticks; keep the last answers."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from celery_catchup.beat.for_each import Declares, Found
from celery_catchup.clock import Clock, SystemClock
from celery_catchup.config.for_each import Values, listed_values, too_many, value_problems
from celery_catchup.engine.failures import Failures
from celery_catchup.error_text import describe_error, shown
from celery_catchup.errors import ConfigurationError
from celery_catchup.events.log_lines import logfmt
from celery_catchup.events.recurring_problems import backoff
from celery_catchup.model import to_instant
from celery_catchup.store.error_advice import STORE_FAILS
from celery_catchup.store.for_each_values import ForEachValues
from celery_catchup.store.opening import open_store

logger = logging.getLogger(__name__)

_AT_START = 1.0
"""Seconds that a start waits for the first answers; afterwards the last known values are used."""
_BY_HAND = 3.0
"""Seconds that a command waits for an answer that no beat has stored."""
_TOO_LONG = 30.0
"""Seconds after which a call without an answer is reported."""
_READ_AGAIN = 5.0
"""Seconds between two looks for values that a beat has stored."""


class StoredValues:
    """The values that the beats have stored, for commands and pages. A function is called here only if no
    beat has stored an answer of it."""

    def __init__(self, app: Any) -> None:
        self._app, self._clock = app, SystemClock()
        self._read_at = 0.0
        self._found: Found = {}
        self._asked: dict[str, dict[str, Values]] = {}

    def first(self, declares: Mapping[str, Declares]) -> Found:
        """Return the values of these declarations."""
        self._found, self._read_at = self._read(), self._clock.monotonic()
        for name, one in declares.items():
            for key, path in one.each.functions.items():
                if key not in self._found.get(name, {}) and key not in self._asked.get(name, {}):
                    call = _Call(path)
                    call.wait(_BY_HAND)
                    if call.values is None:
                        logger.warning(logfmt("No values for for_each", entry=name, error=call.problem))
                    else:
                        self._asked.setdefault(name, {})[key] = call.values
        return _over(self._asked, self._found)

    def changed(self, declares: Mapping[str, Declares]) -> Found | None:
        """Return the values if beat has stored others; looks at intervals."""
        if self._clock.monotonic() - self._read_at < _READ_AGAIN:
            return None
        self._read_at = self._clock.monotonic()
        before, self._found = self._found, self._read(default=self._found)
        return None if before == self._found else _over(self._asked, self._found)

    def _read(self, default: Found | None = None) -> Found:
        try:
            with closing(open_store(self._app)) as store:
                return ForEachValues(store).read()
        except (ConfigurationError, *STORE_FAILS):  # mistakes are reported with all others
            return default or {}


def _over(asked: Found, stored: Found) -> Found:
    return {name: {**asked.get(name, {}), **stored.get(name, {})} for name in {**asked, **stored}}


class AskedValues:
    """The values of a beat: it calls each function again after ``refresh``, in a thread of its own.

    A function that fails or does not answer affects no other: its last values stay, and the entry is among
    the ``failures`` until it works again. The answers are stored, for the next start and for other processes.
    """

    def __init__(self, app: Any, clock: Clock) -> None:
        self._app, self._clock = app, clock
        self._declares: Mapping[str, Declares] = {}
        self._calls: dict[tuple[str, str], _Source] = {}
        self._recalled = False
        self._unsaved: set[str] = set()
        self.failures: Failures | None = None

    def first(self, declares: Mapping[str, Declares]) -> Found:
        """Return the values of these declarations as far as they are known; wait a moment for functions that
        were not called before."""
        self._follow(declares)
        for source in self._calls.values():
            if source.values is None and source.call is not None and not source.tries:
                source.call.wait(_AT_START)
        self._collect()
        return self._found()

    def changed(self, declares: Mapping[str, Declares]) -> Found | None:
        """Call the functions whose time has come; return the values if some are others than before. The
        first time it reads those that are stored, which may raise an error of Redis."""
        before = self._found()
        self._follow(declares)
        if not hasattr(self._clock, "every"):  # a clock that does not run by itself, in a test
            for source in self._calls.values():
                if source.call is not None:
                    source.call.wait(_AT_START)
        self._collect()
        if not self._recalled and any(source.values is None for source in self._calls.values()):
            self._recall()
        self._recalled = True
        self._save()
        found = self._found()
        return None if found == before else found

    def _follow(self, declares: Mapping[str, Declares]) -> None:
        """Call what is due, and forget what is not declared any more."""
        now, self._declares = self._clock.monotonic(), declares
        wanted = {
            (name, key): (path, one.refresh)
            for name, one in declares.items()
            for key, path in one.each.functions.items()
        }
        self._calls = {key: source for key, source in self._calls.items() if key in wanted}
        for key, (path, refresh) in wanted.items():
            source = self._calls.get(key)
            if source is None or source.path != path:
                known = None if source is None else source.values
                source = self._calls[key] = _Source(path, refresh, now, known)
            source.refresh = refresh
            if source.call is None and source.due_at <= now:
                source.call, source.called_at = _Call(path), now

    def _collect(self) -> None:
        now = self._clock.monotonic()
        for (name, key), source in self._calls.items():
            call = source.call
            if call is None:
                continue
            if not call.ended:
                late = now - source.called_at
                if late >= _TOO_LONG and now >= source.due_at:
                    self._fail(name, source, f"{source.path} has not answered for {late:.0f} s", now)
                continue
            source.call = None
            problem = call.problem if call.values is None else self._too_many(name, key, call.values)
            if call.values is None or problem:
                self._fail(name, source, problem or "", now)
                continue
            if source.tries and self.failures is not None:
                self.failures.over(name)
            source.tries, source.due_at = 0, now + source.refresh
            if call.values != source.values:
                _log_change(name, key, source.values, call.values)
                source.values = call.values
                self._unsaved.add(name)

    def _too_many(self, name: str, key: str, values: Values) -> str | None:
        """Return why the values of two arguments make too many entries together."""
        each = self._declares[name].each
        known = {**each.lists, **self._found().get(name, {}), key: values}
        return too_many([known[one] for one in each.keys if one in known])

    def _fail(self, name: str, source: _Source, reason: str, now: float) -> None:
        source.tries += 1
        source.due_at = now + backoff(source.tries, shortest=1, longest=60)
        kept = "no values are known yet" if source.values is None else f"{len(source.values)} values are kept"
        reason = f"for_each: {reason}; {kept}"
        if self.failures is not None:
            self.failures.record(name, reason, now=to_instant(self._clock.now()))
        else:
            logger.warning(logfmt("No values for for_each", entry=name, error=reason))

    def _recall(self) -> None:
        with closing(open_store(self._app)) as store:
            stored = ForEachValues(store).read()
        for (name, key), source in self._calls.items():
            if source.values is None:
                source.values = stored.get(name, {}).get(key)

    def _save(self) -> None:
        if not self._unsaved:
            return
        found = self._found()
        with closing(open_store(self._app)) as store:
            ForEachValues(store).write({name: found[name] for name in self._unsaved if name in found})
        self._unsaved.clear()

    def _found(self) -> dict[str, dict[str, Values]]:
        found: dict[str, dict[str, Values]] = {}
        for (name, key), source in self._calls.items():
            if source.values is not None:
                found.setdefault(name, {})[key] = source.values
        return found


def _log_change(name: str, key: str, before: Values | None, after: Values) -> None:
    if not after:
        logger.warning(logfmt("for_each has no values", entry=name, argument=key))
    elif before is not None:
        added, gone = len(set(after) - set(before)), len(set(before) - set(after))
        logger.info(logfmt("Values of for_each changed", entry=name, argument=key, added=added, removed=gone))


@dataclass
class _Source:
    """A function, its last values, and when to call it next."""

    path: str
    refresh: float
    due_at: float
    values: Values | None = None
    call: _Call | None = None
    called_at: float = 0.0
    tries: int = 0


class _Call:
    """One call of a function, in a thread of its own: a connection that it opens there ends with it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.values: Values | None = None
        self.problem = f"{path} has not answered"
        self._thread = threading.Thread(target=self._run, name="celery-catchup-for-each", daemon=True)
        self._thread.start()

    @property
    def ended(self) -> bool:
        return not self._thread.is_alive()

    def wait(self, seconds: float) -> None:
        self._thread.join(seconds)

    def _run(self) -> None:
        module, _, name = self._path.partition(":")
        try:
            function: Any = import_module(module)
            for part in name.split("."):
                function = getattr(function, part)
            answer = function()
            values = answer if isinstance(answer, list | tuple | set | frozenset) else _listed(answer)
        except Exception as error:  # noqa: BLE001 - it is the user's function
            self.problem = f"{self._path} raised {describe_error(error)}"
            return
        problems = value_problems(values)
        if problem := too_many([values]):
            problems.append(problem)
        if problems:
            self.problem = f"{self._path} returned values that cannot be used: {'; '.join(problems)}"
        else:
            self.values = listed_values(values)


def _listed(answer: Any) -> list[Any]:
    """Read an answer that is a generator or a query of Django; `TypeError` for another type."""
    if isinstance(answer, str | bytes | Mapping):
        raise TypeError(f"expected a list of texts, got {shown(answer)}")
    return list(answer)
