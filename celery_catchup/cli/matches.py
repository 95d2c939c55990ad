"""Show which entries a pattern matches, and many entries of one ``for_each`` as one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from celery_catchup.cli.screen import Screen
from celery_catchup.config.name_patterns import group_of
from celery_catchup.error_text import counted

_MOST = 20
"""Names that are shown; -n shows them all."""


_MANY = 5
"""Entries of a group from which on one line stands for all of them."""


def large_groups(names: Iterable[str]) -> dict[str, list[str]]:
    """Return the groups of many entries, by pattern: ``sync[*]``."""
    groups: dict[str, list[str]] = {}
    for name in names:
        if group := group_of(name):
            groups.setdefault(group, []).append(name)
    return {group: some for group, some in groups.items() if len(some) >= _MANY}


def listed_by_group(names: Iterable[str]) -> str:
    """List names; many of one group as ``sync[*] (40 entries)``."""
    every = list(names)
    groups = large_groups(every)
    parts = [
        f"{group} ({len(groups[group])} entries)" if (group := group_of(name)) in groups else name
        for name in every
    ]
    return ", ".join(dict.fromkeys(parts))


def show_matches(screen: Screen, written: Sequence[str], names: Sequence[str]) -> None:
    """Print the entries that were found, unless each was named."""
    if set(written) == set(names):
        return
    more = ", …" if len(names) > _MOST else ""
    screen.note(f"{counted(len(names), 'entry', 'entries')}: {', '.join(names[:_MOST])}{more}")
