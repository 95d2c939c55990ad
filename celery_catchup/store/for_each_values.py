"""The last values that functions of ``for_each`` have returned: for the next start, and other processes."""

from __future__ import annotations

import json
from collections.abc import Mapping

from celery_catchup.config.for_each import value_problems
from celery_catchup.store.store import StorePart, read_json, texts


class ForEachValues(StorePart):
    """Reads and writes the values, by declaration and argument."""

    def read(self) -> dict[str, dict[str, tuple[str, ...]]]:
        """Return all values; those that cannot be read are left out."""
        found = {}
        for name, text in texts(self._client.hgetall(self._keys.for_each)).items():
            values = read_json(text) or {}
            found[name] = {
                key: tuple(some)
                for key, some in values.items()
                if isinstance(some, list) and not value_problems(some)
            }
        return found

    def write(self, values: Mapping[str, Mapping[str, tuple[str, ...]]]) -> None:
        """Replace the values of these declarations."""
        if values:
            written = {name: json.dumps(some) for name, some in values.items()}
            self._client.hset(self._keys.for_each, mapping=written)
