"""Match names of entries with patterns: ``*`` is any text, ``?`` is one character, all else is itself.

Unlike in `fnmatch`, brackets are ordinary characters: ``sync[*]`` is every entry of a ``for_each``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

WILDCARDS = "*?"


def is_pattern(text: str) -> bool:
    """Return whether the text has wildcards; an entry's name may have some, too."""
    return any(one in text for one in WILDCARDS)


def group_of(name: str) -> str:
    """Return the pattern of all entries that ``for_each`` makes beside this one: ``sync[*]``; empty for a
    name without brackets at its end."""
    begin = name.rfind("[")
    return f"{name[:begin]}[*]" if begin > 0 and name.endswith("]") else ""


def entries_of(written: str, known: Collection[str]) -> list[str]:
    """Return the entry of this name, else those that it matches as a pattern; a name that has wildcards is
    never taken for a pattern."""
    if written in known:
        return [written]
    return matching(written, known) if is_pattern(written) else []


def matching(pattern: str, names: Iterable[str]) -> list[str]:
    """Return those of these names that the whole pattern matches, in their order."""
    parts = ("".join("." if one == "?" else re.escape(one) for one in part) for part in pattern.split("*"))
    first, *others = parts
    written = first
    if others:
        # Each part is looked for once: a hostile pattern must not make the matcher go back.
        written += "".join(f"(?>.*?{part})" for part in others[:-1]) + f".*{others[-1]}"
    matches = re.compile(written, re.DOTALL).fullmatch
    return [name for name in names if matches(name)]
