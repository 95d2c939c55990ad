"""``/catchup/dead``: the runs that have used up their attempts, in groups and one by one."""

from __future__ import annotations

from collections.abc import Sequence

from celery_catchup.error_text import counted
from celery_catchup.flower.pages.elements import FilterLink
from celery_catchup.flower.pages.page import DEAD_LETTERS, Links, Page, Values, parse_word
from celery_catchup.operations import Operator
from celery_catchup.operations.dead_letters import (
    Category,
    DeadLetter,
    DeadLetterGroup,
    group_dead,
    list_dead,
)

ROWS = 50
MOST_SELECTED = 1000
"""Dead letters that are selected at once, and that one request may change."""
_MOST_GROUPED = 2000
_MOST_GROUPS = 20
_PARAMETERS = ("category", "search", "entry", "kind")


class DeadLettersPage(Page):
    """The dead letters, latest first, filtered by entry, error, category and text."""

    template, active, heading = "catchup_dead.html", "dead", "Dead letters"
    refresh_seconds = 10

    def show(self, operator: Operator, link: Links, *path: str) -> Values:
        """Read the dead letters that match the filters."""
        given = {name: self.query(name) for name in _PARAMETERS}
        category, entry = given["category"], given["entry"]
        all_selected = bool(self.query("select"))
        offset = int(text) if (text := self.query("offset")).isdecimal() and not all_selected else 0
        rows = MOST_SELECTED if all_selected else ROWS

        def here(**changes: str) -> str:
            return link(DEAD_LETTERS, **{**given, **changes})

        matching = list_dead(
            operator,
            [entry] if entry else (),
            category=parse_word(Category, "category", category) if category else None,
            search=given["search"],
            kind=given["kind"],
            limit=_MOST_GROUPED,
        )
        found = matching[offset : offset + rows]
        groups = [] if given["kind"] else group_dead(matching)
        return {
            "dead_letters": found,
            "groups": [
                (group, here(entry=group.entry, kind=group.kind))
                for group in _worth_showing(groups)[:_MOST_GROUPS]
            ],
            "categories": [
                FilterLink(one.capitalize() if one else "All", here(category=one), category == one)
                for one in ("", *map(str, Category))
            ],
            "given": given,
            "filtered": any(given.values()),
            "all_selected": all_selected,
            "select_all": here(select="all") if len(matching) > len(found) and not all_selected else "",
            "matching": _number(matching),
            "words": _words(found, matching, offset),
            "newer": here(offset=str(offset - rows) if offset > rows else "") if offset else "",
            "older": here(offset=str(offset + rows)) if len(matching) > offset + rows else "",
        }


def _worth_showing(groups: Sequence[DeadLetterGroup]) -> Sequence[DeadLetterGroup]:
    """Return the groups if they are shorter than the list."""
    return groups if any(group.count > 1 for group in groups) else ()


def _number(matching: Sequence[DeadLetter]) -> str:
    return f"the newest {len(matching):,}" if len(matching) == _MOST_GROUPED else f"all {len(matching):,}"


def _words(found: Sequence[DeadLetter], matching: Sequence[DeadLetter], offset: int) -> str:
    if not found:
        return ""
    total = f"{_MOST_GROUPED:,} or more" if len(matching) == _MOST_GROUPED else f"{len(matching):,}"
    if len(found) == len(matching):
        return counted(len(found), "dead letter")
    return f"{offset + 1:,} – {offset + len(found):,} of {total} dead letters"
