"""Reading a case so that nothing in it is overlooked: what was not asked for is an error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from celery_catchup.model import Instant, to_instant

MISSING: Any = object()
PROSE = ("id", "kind", "source", "title", "note", "why")


class Fields:
    """The fields of a mapping; each must be taken once, and `done` fails for the rest."""

    def __init__(self, raw: dict[str, Any]) -> None:
        self._left = {key: value for key, value in raw.items() if key not in PROSE}

    def take(self, name: str, default: Any = MISSING) -> Any:
        if default is MISSING and name not in self._left:
            raise AssertionError(f"the case has no field {name!r}")
        return self._left.pop(name, default)

    def time(self, name: str, default: Any = MISSING) -> Instant | None:
        value = self.take(name, default)
        return None if value is None else instant(value)

    def rest(self) -> dict[str, Any]:
        left, self._left = self._left, {}
        return left

    def done(self) -> None:
        assert not self._left, f"fields that the conformance test does not know: {sorted(self._left)}"


@contextmanager
def fields(raw: dict[str, Any]) -> Iterator[Fields]:
    """The fields of ``raw``; all of them must have been taken at the end."""
    taken = Fields(raw)
    yield taken
    taken.done()


def instant(text: str) -> Instant:
    return to_instant(datetime.fromisoformat(text))
