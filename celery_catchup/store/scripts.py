"""Lua scripts from files.

The header of each file lists its keys and arguments in order. The script finds them by these
names, in the tables ``keys`` and ``args``. Further ones (``...``) begin at ``KEYS[first_key]`` and
``ARGV[first_arg]``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import sha1
from importlib.resources import files
from typing import Any

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
