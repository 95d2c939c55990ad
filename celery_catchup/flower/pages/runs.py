"""``/catchup/runs``: runs, filtered by what the address says, and slots that became none."""

from __future__ import annotations

from dataclasses import replace

from celery_catchup.flower.labels import counted
from celery_catchup.flower.links import Links
from celery_catchup.flower.pages.asking import moment, word
from celery_catchup.flower.pages.page import Page, Values
from celery_catchup.flower.views.filters import Filter, choices
from celery_catchup.flower.views.runs import RunRow, run_row, skip_row
from celery_catchup.model import RunState, Severity, SkipReason, Trigger
from celery_catchup.operations import Operator
from celery_catchup.operations.runs import list_runs, list_skips

ROWS = 50


class RunsPage(Page):
    """Runs, the newest slot first."""

    template, active, heading = "catchup_runs.html", "runs", "Runs"

    def show(self, operator: Operator, link: Links, *path: str) -> Values:
        """A page of runs, or of skipped slots."""
        asked = self._filter()
        rows, cursor = _slots(operator, asked) if asked.of_slots else _runs(operator, asked)
        return {
            "of": asked.entry,
            "filters": choices(asked, link),
            "kept": asked.kept(),
            "entry": asked.entry,
            "since": asked.since,
            "until": asked.until,
            "runs": rows,
            "selectable": self.may_change and not asked.of_slots,
            "nothing": _nothing(asked),
            "words": counted(len(rows), "line") if asked.of_slots else counted(len(rows), "run"),
            "newest": replace(asked, cursor="").href(link) if asked.cursor else "",
            "older": replace(asked, cursor=cursor).href(link) if cursor else "",
        }

    def _filter(self) -> Filter:
        return Filter(
            trigger_type=tuple(filter(None, self.get_query_arguments("triggerType"))),
            state=tuple(filter(None, self.get_query_arguments("state"))),
            entry=self.asked("entry"),
            since=self.asked("since"),
            until=self.asked("until"),
            cursor=self.asked("cursor"),
        )


def _runs(operator: Operator, asked: Filter) -> tuple[list[RunRow], str]:
    found = list_runs(
        operator,
        [asked.entry] if asked.entry else [],
        triggers=[word(Trigger, "triggerType", one) for one in asked.trigger_type],
        states=[word(RunState, "state", one) for one in asked.state],
        since=moment(operator, "since", asked.since),
        until=moment(operator, "until", asked.until),
        limit=ROWS,
        cursor=asked.cursor or None,
    )
    return [run_row(run) for run in found.runs], found.cursor or ""


def _slots(operator: Operator, asked: Filter) -> tuple[list[RunRow], str]:
    until = moment(operator, "until", asked.until)
    found = list_skips(
        operator,
        [asked.entry] if asked.entry else [],
        since=moment(operator, "since", asked.since),
        limit=10 * ROWS,
    )
    wanted = [
        one
        for one in found
        if ("missed" if one.reason in SkipReason.of(Severity.LOST) else "skipped") in asked.state
        and (until is None or one.first <= until)
    ]
    return [skip_row(one) for one in wanted[: 4 * ROWS]], ""


def _nothing(asked: Filter) -> str:
    if not any(True for _ in asked.fields()):
        return "No run is recorded yet. A run appears here as soon as a beat has decided on a slot."
    return "Nothing fits these filters."
