"""``/catchup/entries``: the entries that were created at run time, and the form for one of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from urllib.parse import quote

from celery_catchup.config.field_descriptions import describe_fields
from celery_catchup.config.policy import MAIN_FIELDS, Policy
from celery_catchup.flower.allowed_tasks import allowed_patterns, known_tasks, why_not_allowed
from celery_catchup.flower.markup import Markup, element, join
from celery_catchup.flower.pages.elements import api_button
from celery_catchup.flower.pages.page import ENTRIES, ENTRY_FORM, Links, Page, Values
from celery_catchup.operations import Operator, as_json
from celery_catchup.stored_entries.stored_entry import ONE_OFF_WINDOW, EntryFields, StoredEntry

ROWS = 50
_MOST_TASKS = 500
"""Tasks that the form proposes."""
_KINDS = {"cron": "Cron expression", "every": "Interval", "at": "Once, at", "json": "Several, as JSON"}
_EXAMPLES = {
    "cron": "0 6 * * 1-5",
    "every": "15m",
    "at": "2026-12-01T09:00:00Z",
    "json": '["0 6 * * *", "30 18 * * *"]',
}


@dataclass(frozen=True, slots=True)
class StoredRow:
    """One line of the list; ``entry`` is None if its record cannot be read. ``problem`` is why it does not
    run, unless it is disabled."""

    name: str
    entry: StoredEntry | None
    problem: str
    runs: bool
    buttons: Markup


class StoredEntriesPage(Page):
    """The stored entries by name, searched and paged."""

    template, active, heading = "catchup_stored.html", "stored", "Stored entries"
    refresh_seconds = 10

    def show(self, operator: Operator, link: Links, *path: str) -> Values:
        """Read one page of the entries that match the search."""
        search, offset = self.query("search"), self.query("offset")
        begin = int(offset) if offset.isdecimal() else 0
        stored, text = operator.stored, search.casefold()
        names = sorted(
            [
                name
                for name, entry in stored.entries.items()
                if text in name.casefold() or text in str(entry.task).casefold()
            ]
            + [name for name in stored.unused if text in name.casefold()]
        )
        page = names[begin : begin + ROWS]
        found = operator.stored_entries.find(page)
        patterns = allowed_patterns(operator)
        return {
            "search": search,
            "known": len(stored.entries) + len(stored.unused),
            "rows": [self._row(operator, name, found.get(name), link) for name in page],
            "patterns": patterns,
            "new_button": new_button(link, self.why_read_only or why_nothing_allowed(patterns)),
            "position": f"{begin + 1:,} – {begin + len(page):,} of {len(names):,} entries"
            if len(names) > ROWS
            else "",
            "previous": link(ENTRIES, search=search, offset=str(max(begin - ROWS, 0))) if begin else "",
            "following": link(ENTRIES, search=search, offset=str(begin + ROWS))
            if begin + ROWS < len(names)
            else "",
            "schedule_words": schedule_words,
        }

    def _row(self, operator: Operator, name: str, entry: StoredEntry | None, link: Links) -> StoredRow:
        problem = "" if entry is not None and not entry.enabled else operator.stored.unused.get(name, "")
        buttons = Markup("") if entry is None else self._buttons(operator, entry, link)
        return StoredRow(name, entry, problem, name in operator.stored.entries, buttons)

    def _buttons(self, operator: Operator, entry: StoredEntry, link: Links) -> Markup:
        return entry_buttons(entry, self.why_read_only or why_not_allowed(operator, entry.task), link)


class EntryFormPage(Page):
    """The form for a new entry, or for the stored entry in the query."""

    template, active, heading = "catchup_entry_form.html", "stored", "Stored entries"

    def show(self, operator: Operator, link: Links, *path: str) -> Values:
        """Read the entry, and describe the fields of its policy."""
        name = self.query("entry")
        entry = operator.stored_entries.get(name) if name else None
        patterns = allowed_patterns(operator)
        why = self.why_read_only or why_nothing_allowed(patterns)
        if entry is not None:
            why = why or why_not_allowed(operator, entry.task)
        kind, schedule = ("cron", "") if entry is None else schedule_text(entry.schedule)
        policy = {} if entry is None else policy_of(entry)
        given = {name: value for name, value in policy.items() if value is not None}
        fields = [
            (one, one.to_text(given[one.name]) if one.name in given else "")
            for one in describe_fields(Policy)
        ]
        more = [(one, text) for one, text in fields if one.name not in MAIN_FIELDS]
        return {
            "heading": f"Edit {name}" if name else "New entry",
            "of": name,
            "entry": entry,
            "entry_json": json.dumps(as_json(entry)),
            "tasks": known_tasks(operator, most=_MOST_TASKS),
            "patterns": patterns,
            "why": why,
            "kinds": [(one, words, _EXAMPLES[one]) for one, words in _KINDS.items()],
            "kind": kind,
            "schedule": schedule,
            "one_off_window": ONE_OFF_WINDOW,
            "recovers": bool(policy),
            "main_fields": [(one, text) for one, text in fields if one.name in MAIN_FIELDS],
            "more_fields": more,
            "more_open": any(text for _, text in more),
            "meanings": {one.name: one.meaning for one in describe_fields(EntryFields)},
            "written": written_json,
            "app_timezone": str(operator.app.timezone),
            "then": link(ENTRIES),
            "buttons": entry_buttons(entry, why, link, edit=False) if entry is not None else "",
        }


def why_nothing_allowed(patterns: tuple[str, ...]) -> str | None:
    """Explain why no entry can be created here; None if some can."""
    if patterns:
        return None
    return "No task is allowed; list patterns of tasks in catchup_allowed_tasks, and restart Flower."


def new_button(link: Links, why: str | None) -> Markup:
    """Write the link to the form for a new entry, or a button that says why there is none."""
    if why:
        return api_button("New entry", "", why=why)
    return element("a", "New entry", class_="cu-btn", href=link(ENTRY_FORM))


def entry_buttons(entry: StoredEntry, why: str | None, link: Links, *, edit: bool = True) -> Markup:
    """Write the buttons that change a stored entry: edit, enable or disable, delete."""
    path, name = f"/entries/{quote(entry.name, safe='')}", entry.name
    change = partial(api_button, why=why, data_match=str(entry.revision))
    again = None if edit else link.edit(name)  # the form has the entry as it was
    parts = []
    if edit:
        words = "Look" if why else "Edit"
        parts.append(element("a", words, class_="cu-btn", href=link.edit(name), aria_label=f"{words} {name}"))
    verb, on = ("Disable", False) if entry.enabled else ("Enable", True)
    missed = "Slots that come due meanwhile do not run, and are not caught up."
    parts.append(
        change(
            verb,
            f"{path}/update",
            {"enabled": on},
            label=f"{verb} {name}",
            confirm=None if on else f"Disable “{name}”? {missed}",
            done=f"“{name}” is enabled; beat runs it from its next tick on."
            if on
            else f"“{name}” is disabled.",
            then=again,
        )
    )
    parts.append(
        change(
            "Delete",
            f"{path}/delete",
            label=f"Delete {name}",
            kind="cu-danger",
            confirm=f"Delete “{name}”? Its runs stay in the ledger as long as other runs do.",
            done=f"“{name}” is deleted.",
            then=None if edit else link(ENTRIES),
        )
    )
    return join(part for one in parts for part in (one, Markup(" ")))


def schedule_text(schedule: object) -> tuple[str, str]:
    """Return how the form shows a schedule: its kind, and the text."""
    if isinstance(schedule, str):
        return "cron", schedule
    if isinstance(schedule, dict) and len(schedule) == 1:
        ((kind, value),) = schedule.items()
        if kind in ("cron", "every", "at") and isinstance(value, str):
            return kind, value
    return "json", json.dumps(schedule, ensure_ascii=False, indent=1)


def schedule_words(schedule: object) -> str:
    """Write a schedule on one line."""
    kind, text = schedule_text(schedule)
    before = {"every": "every ", "at": "once at "}.get(kind, "")
    return before + (json.dumps(schedule, ensure_ascii=False) if kind == "json" else text)


def policy_of(entry: StoredEntry) -> dict[str, object]:
    """Return the fields of an entry's policy under their own names; empty if missed slots never run."""
    policy = entry.policy()
    if isinstance(policy, str):
        return {"window": policy}
    names = Policy.spellings()
    if not isinstance(policy, dict):
        return {}
    return {names.get(str(name), str(name)): value for name, value in policy.items()}


def written_json(value: object) -> str:
    """Write arguments for the form; empty ones as an empty field."""
    return json.dumps(value, ensure_ascii=False, indent=1) if value else ""
