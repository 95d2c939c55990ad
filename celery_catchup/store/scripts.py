"""Lua scripts from files, called by name with named keys and arguments.

The header of each file lists its keys and arguments in order; a call with other names is
an error before anything is sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import sha1
from importlib.resources import files
from typing import Any

from redis import Redis
from redis.exceptions import NoScriptError

_FOLDER = files("celery_catchup.store") / "lua"
MORE = "..."
"""In a header: any number of further keys or arguments follow."""


@dataclass(frozen=True)
class Script:
    """One verb: its text, and the names of its keys and arguments in order."""

    name: str
    text: str
    keys: tuple[str, ...]
    args: tuple[str, ...]

    @cached_property
    def sha(self) -> str:
        """The digest by which the server knows the script."""
        return sha1(self.text.encode(), usedforsecurity=False).hexdigest()

    def positions(self, given: Mapping[str, Any], names: tuple[str, ...], more: Iterable[Any]) -> list[Any]:
        """The values in the order of the header."""
        wanted = tuple(name for name in names if name != MORE)
        rest = list(more)
        if set(given) != set(wanted) or (rest and MORE not in names):
            raise TypeError(f"{self.name}.lua takes {wanted}, got {tuple(given)} and {len(rest)} more")
        return [given[name] for name in wanted] + rest


@lru_cache(maxsize=1)
def all_scripts() -> Mapping[str, Script]:
    """Every verb of the store."""
    names = sorted(file.name.removesuffix(".lua") for file in _FOLDER.iterdir() if file.name.endswith(".lua"))
    return {name: read_script(name) for name in names if name != "library"}


def read_script(name: str) -> Script:
    """A verb from its file, behind what all of them share."""
    own = (_FOLDER / f"{name}.lua").read_text(encoding="utf-8")
    library = (_FOLDER / "library.lua").read_text(encoding="utf-8")
    return Script(name, "\n".join((library, own)), _listed(own, "KEYS"), _listed(own, "ARGV"))


def _listed(text: str, what: str) -> tuple[str, ...]:
    """The names behind ``-- KEYS`` or ``-- ARGV``; several on a line are parted by commas."""
    found: list[str] = []
    for line in re.findall(rf"^-- {what} ([\w.]+(?:, [\w.]+)*)", text, re.MULTILINE):
        found += line.split(", ")
    return tuple(found)


class Scripts:
    """Calls verbs on a server; loads one that the server does not know, once."""

    def __init__(self, client: Redis) -> None:
        self._client = client

    def call(
        self,
        name: str,
        keys: Mapping[str, str],
        args: Mapping[str, str | int | bytes],
        *,
        more_keys: Iterable[str] = (),
        more_args: Iterable[str | int] = (),
    ) -> Any:
        """Run a verb. An unknown outcome (a lost reply) is the caller's to repeat or not."""
        script = all_scripts()[name]
        key_list = script.positions(keys, script.keys, more_keys)
        arg_list = script.positions(args, script.args, more_args)
        try:
            return self._client.evalsha(script.sha, len(key_list), *key_list, *arg_list)
        except NoScriptError:
            # Nothing has run: the server does not know the script (a restart, SCRIPT FLUSH).
            return self._client.eval(script.text, len(key_list), *key_list, *arg_list)
