"""``/catchup/audit``: who changed what, when, and from where."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from celery_catchup.error_text import counted, shortened
from celery_catchup.flower.pages.elements import FilterLink
from celery_catchup.flower.pages.page import AUDIT, Links, Page, Values, parse_word, status_of
from celery_catchup.operations import Operator, RefusedError
from celery_catchup.operations.audit import AuditPage as Changes
from celery_catchup.operations.audit import AuditRecord, list_changes
from celery_catchup.store import Origin

ROWS = 50
_PARAMETERS = ("entry", "actor", "origin", "since", "cursor")
_LONGEST = 120


class AuditTrailPage(Page):
    """The changes, newest first, filtered by entry, actor, origin and time."""

    template, active, heading = "catchup_audit.html", "audit", "Audit"
    refresh_seconds = 10

    def show(self, operator: Operator, link: Links, *path: str) -> Values:
        """Read a page of changes."""
        given = {name: self.query(name) for name in _PARAMETERS}
        first = {**given, "cursor": ""}
        problem, found = "", Changes((), None)
        try:
            found = list_changes(
                operator,
                entries=[given["entry"]] if given["entry"] else (),
                actor=given["actor"],
                origins=[parse_word(Origin, "origin", given["origin"])] if given["origin"] else (),
                since=self.moment("since"),
                limit=ROWS,
                cursor=given["cursor"] or None,
            )
        except RefusedError as error:  # the form stays, to be corrected
            problem = str(error)
            self.set_status(status_of(error))
        return {
            "of": given["entry"],
            "given": given,
            "problem": problem,
            "changes": [(one, _with(one.parameters), _more(one)) for one in found.records],
            "origins": [
                FilterLink(words, link(AUDIT, **{**first, "origin": origin}), given["origin"] == origin)
                for origin, words in (("", "All"), *((str(one), str(one)) for one in Origin))
            ],
            "filtered": any(given.values()),
            "words": counted(len(found.records), "change"),
            "newest": link(AUDIT, **first) if given["cursor"] else "",
            "older": link(AUDIT, **{**given, "cursor": found.cursor}) if found.cursor else "",
            "known": list(operator.schedule)[:500],
        }


def _with(parameters: Mapping[str, Any]) -> str:
    pairs = (
        f"{name}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for name, value in parameters.items()
    )
    return "; ".join(shortened(one, _LONGEST) for one in pairs)


def _more(one: AuditRecord) -> str:
    entries, targets = one.entry_count - len(one.entries), one.target_count - len(one.targets)
    words = [f"{entries:,} more entries"] if entries else []
    return ", ".join([*words, f"{targets:,} more runs"] if targets else words)
