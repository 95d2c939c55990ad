"""Notes above a page, and the cards: what somebody should know at a glance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from celery_catchup.flower.drawing.svg import Markup, joined
from celery_catchup.flower.labels import clock, counted, length
from celery_catchup.flower.links import DEAD, RUNS, asked
from celery_catchup.model import to_instant, to_rfc3339
from celery_catchup.operations.status import Banner, Health, Overview, Status

_MOST_FAILING = 3
"""Failing entries with a note of their own."""


@dataclass(frozen=True, slots=True)
class Note:
    """A sentence above the page, perhaps with somewhere to go."""

    strong: str
    text: str
    kind: str = ""
    path: str = ""
    action: str = ""


@dataclass(frozen=True, slots=True)
class Card:
    """One number, what it is, and what lies behind it."""

    name: str
    value: str
    more: Markup
    path: str = ""
    kind: str = ""


def notes(told: Overview, *, entry: str = "") -> list[Note]:
    """What is new or wrong. On an entry's page the link leads to its runs."""
    return [*_troubles(told.status), *([] if told.banner is None else [_banner(told.banner, entry)])]


def cards(told: Overview) -> list[Card]:
    """The last day in numbers."""
    return list(_cards(told))


def _banner(banner: Banner, entry: str) -> Note:
    query = {
        "triggerType": "catchup",
        "entry": entry,
        "since": to_rfc3339(to_instant(banner.first)),
        "until": to_rfc3339(to_instant(banner.last)),
    }
    verb = "was" if banner.dispatched == 1 else "were"
    return Note(
        counted(banner.dispatched, "catch-up run"),
        f"{verb} dispatched for missed schedules between {_between(banner.first, banner.last)}.",
        path=RUNS + asked(query),
        action="Show them",
    )


def _between(first: datetime, last: datetime) -> str:
    """``09:00 and 12:00 UTC``; with days when there are several."""
    form = "%H:%M" if first.date() == last.date() else "%Y-%m-%d %H:%M"
    return f"{first.strftime(form)} and {last.strftime(form)} UTC"


def _troubles(told: Status) -> Iterator[Note]:
    age = length(told.last_tick_age)
    match told.scheduler:
        case Health.NEVER_STARTED:
            yield Note(
                "No beat has ever run here.",
                f"Start one with: celery beat -S celery_catchup:Scheduler (namespace {told.namespace}).",
                kind="cu-warn",
            )
        case Health.DOWN:
            text = f"No tick for {age}; missed slots are caught up when one is back."
            yield Note("Beat is down.", text, kind="cu-error")
        case Health.STANDING_BY:
            yield Note("Nobody leads.", f"The last leader resigned {age} ago.", kind="cu-warn")
        case _:
            pass
    if told.conflict is not None:
        kind = "cu-error" if told.conflict.lasting else "cu-warn"
        yield Note("Two beats disagree.", f"{told.conflict.detail}; set catchup_namespace.", kind=kind)
    if told.without_plugin:
        text = (
            f'{", ".join(told.without_plugin)}: add imports += ["celery_catchup.worker"] to their settings.'
        )
        yield Note("Workers without the plugin execute runs that stay open.", text, kind="cu-warn")
    for one in told.failing[:_MOST_FAILING]:
        what = one.entry if one.backfill is None else f"Backfill {one.backfill} of {one.entry}"
        yield Note(f"{what} is failing.", f"{one.reason} It is tried again.", kind="cu-error")
    if len(told.failing) > _MOST_FAILING:
        rest = len(told.failing) - _MOST_FAILING
        yield Note(f"{rest:,} more are failing.", "celery catchup status lists them.", kind="cu-error")
    if told.healthy and not told.workers:
        text = 'Add imports = ["celery_catchup.worker"] to your configuration, or start one.'
        yield Note("No worker with the plugin was seen lately.", text, kind="cu-warn")


def _cards(told: Overview) -> Iterator[Card]:
    status = told.status
    fine = {Health.RUNNING: "cu-fine", Health.DOWN: "cu-attention"}
    yield Card("Scheduler", str(status.scheduler), _leader(status), kind=fine.get(status.scheduler, ""))
    yield _catchup(told)
    skipped = f"{told.skipped_by_policy:,} skipped by policy"
    path = RUNS + asked({"triggerType": "catchup", "since": "24h"})
    yield Card("Caught up · 24 h", f"{told.caught_up:,}", _said(skipped), path=path)
    lost = RUNS + asked({"state": "missed", "since": "24h"})
    yield Card(
        "Not recovered · 24 h",
        f"{told.not_recovered:,}",
        _said("catch-up off, capped, removed or outside window"),
        path=lost,
        kind="cu-attention" if told.not_recovered else "",
    )
    yield Card(
        "Dead letters",
        f"{told.dead_letters:,}",
        _said("waiting for replay" if told.dead_letters else "nothing waits for you"),
        path=DEAD,
        kind="cu-attention" if told.dead_letters else "",
    )
    lag = "none" if told.largest_lag is None else length(told.largest_lag)
    yield Card("Largest lag · 24 h", lag, _said("scheduled → started"))


def _leader(status: Status) -> Markup:
    if status.last_tick is None:
        return _said("never started")
    name = status.leader or "nobody leads"
    return joined([f"{name} · tick ", clock(status.last_tick)])


def _catchup(told: Overview) -> Card:
    progress, last = told.status.catchup, told.last_catchup
    if progress is not None:
        done = progress.dispatched + progress.skipped
        more = f"{progress.dispatched:,} dispatched, {progress.skipped:,} skipped"
        return Card("Catch-up", f"{done:,} of {progress.total:,}", _said(more))
    if last is None:
        return Card("Catch-up", "idle", _said("there was none yet"))
    return Card("Catch-up", "idle", joined([f"last: {last.dispatched:,} dispatched, ", clock(last.ended_at)]))


def _said(text: str) -> Markup:
    return joined([text])
