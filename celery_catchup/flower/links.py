"""Addresses of the tab's pages, below whatever prefix Flower is served at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import quote, urlencode

Query = Mapping[str, str | Iterable[str] | None]

SCHEDULES = "/catchup"
RUNS = "/catchup/runs"
DEAD = "/catchup/dead"
BACKFILLS = "/catchup/backfills"
ENTRY = "/catchup/entry"


class Links:
    """Makes addresses."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def __call__(self, path: str, **query: str | Iterable[str] | None) -> str:
        """The address of a path with these fields in its query; empty ones are left out."""
        return self._prefix + path + asked(query)

    def run(self, run_id: str) -> str:
        """The page of a run."""
        return self(f"/catchup/run/{quote(run_id, safe='')}")

    def entry(self, name: str) -> str:
        """The page of an entry, whatever characters its name has."""
        return self(ENTRY, entry=name)


def asked(query: Query) -> str:
    """``?entry=etl&state=failed&state=dead``, or nothing."""
    pairs = [
        (name, value)
        for name, values in query.items()
        for value in ([values] if isinstance(values, str) else values or ())
        if value
    ]
    return f"?{urlencode(pairs)}" if pairs else ""
