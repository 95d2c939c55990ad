"""Read what a row's page shows of its entry: watermark, last slots, next slots; or why that is not known."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from celery.app import app_or_default

from celery_catchup.beat.row_policies import has_policy_in_settings
from celery_catchup.config.app_settings import read_settings
from celery_catchup.config.settings import Source
from celery_catchup.errors import CatchupError, StoreError
from celery_catchup.operations import Operator, UnknownEntryError
from celery_catchup.operations.entries import EntryRow, show_entry
from celery_catchup.operations.operator import MOST_PER_REQUEST
from celery_catchup.operations.runs import list_runs
from celery_catchup.operations.skipped_slots import list_skips
from celery_catchup.store import Actor, Origin
from celery_catchup.store.error_advice import STORE_FAILS
from celery_catchup.store.opening import open_store, why_unusable

PATIENCE = 1.0
"""Seconds that a page waits for the store."""
_SLOTS = 10


@dataclass(frozen=True, slots=True)
class LastSlot:
    """A slot that was decided: its run's state, or why it was skipped."""

    time: datetime
    state: str
    detail: str
    count: int = 1


@dataclass(frozen=True, slots=True)
class EntryPanel:
    """The facts about a row's entry; ``problem`` says why there are none."""

    problem: str = ""
    entry: EntryRow | None = None
    last: tuple[LastSlot, ...] = ()
    next: tuple[datetime, ...] = ()
    in_settings: bool = False


@contextmanager
def open_operator(user: Any, *, only: str | None = None) -> Iterator[Operator]:
    """Open an operator for a user of the admin; a failure of the store is a `StoreError`."""
    app = app_or_default()
    operator = Operator(app, actor=Actor(user.get_username(), Origin.DJANGO), only=only)
    operator.most_planned = MOST_PER_REQUEST
    try:
        settings = operator.declared_configuration.settings
        vars(operator)["store"] = open_store(app, settings, patience=PATIENCE)
        yield operator
    except STORE_FAILS as error:
        raise StoreError(why_unusable(app, error)) from None
    finally:
        operator.close()


def read_panel(row: Any, user: Any) -> EntryPanel:
    """Read the facts about a row's entry; never fails."""
    app = app_or_default()
    try:
        if read_settings(app, only=("source",)).source is not Source.DJANGO:
            return EntryPanel("Rows are not entries yet: set CELERY_CATCHUP_SOURCE = 'django'.")
        in_settings = has_policy_in_settings(app, row.name)
        with open_operator(user, only=row.name) as operator:
            last = tuple(_last_slots(operator, row.name))
            if not row.enabled:
                return EntryPanel("The row is disabled, so it is not an entry.", last=last)
            found = show_entry(operator, row.name, slots=_SLOTS)
            return EntryPanel("", found.entry, last, found.next, in_settings)
    except UnknownEntryError:
        return EntryPanel("The row is not an entry; the log of beat says why.")
    except CatchupError as error:
        return EntryPanel(str(error))


def _last_slots(operator: Operator, name: str) -> list[LastSlot]:
    try:
        runs = list_runs(operator, [name], limit=_SLOTS).runs
        skips = list_skips(operator, [name], limit=_SLOTS)
    except UnknownEntryError:  # it never ran
        return []
    slots = [LastSlot(one.scheduled_time, str(one.state), one.trigger_type.label) for one in runs]
    slots += [LastSlot(one.last, "skipped", str(one.reason), one.count) for one in skips]
    return sorted(slots, key=lambda one: one.time, reverse=True)[:_SLOTS]
