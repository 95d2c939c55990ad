"""``/catchup/runs``: the runs, or the skipped slots, that match the filters of the query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace

from celery_catchup.error_text import counted
from celery_catchup.flower.pages.elements import TRIGGERS, FilterLink
from celery_catchup.flower.pages.page import RUNS, Links, Page, Values, parse_word, status_of
from celery_catchup.model import RunState, Severity, SkipReason, Trigger
from celery_catchup.operations import Operator, RefusedError
from celery_catchup.operations.runs import list_runs, progress_of
from celery_catchup.operations.skipped_slots import Skipped, list_skips

ROWS = 50
_MOST_ENTRIES = 50
"""Entries whose names contain the text of the filter."""
_MOST_NAMES = 500
"""Entries that the field proposes."""
_PARAMETERS = ("triggerType", "state", "entry", "since", "until", "cursor")

STATES: Mapping[str, tuple[str, ...]] = {
    "Any state": (),
    "In flight": ("waiting", "queued", "running"),
    "Succeeded": ("succeeded",),
    "Failed": ("failed", "dead"),
    "Revoked": ("revoked",),
    "Skipped": ("skipped",),
    "Missed": ("missed",),
}
"""The links of the filter by state; the last two list slots without a run."""


@dataclass(frozen=True, slots=True)
class RunsQuery:
    """The query of the page, with the parameter names of the HTTP API."""

    trigger_type: tuple[str, ...] = ()
    state: tuple[str, ...] = ()
    entry: str = ""
    since: str = ""
    until: str = ""
    cursor: str = ""

    @property
    def parameters(self) -> dict[str, str | tuple[str, ...]]:
        """The parameters by name."""
        return dict(zip(_PARAMETERS, astuple(self), strict=True))

    @property
    def wants_slots(self) -> bool:
        """Whether slots without a run are listed."""
        return bool({"skipped", "missed"} & set(self.state))


class RunsPage(Page):
    """The runs, newest slot first."""

    template, active, heading = "catchup_runs.html", "runs", "Runs"

    def show(self, operator: Operator, link: Links, *path: str) -> Values:
        """Read a page of runs, or the skipped slots."""
        wanted = RunsQuery(
            trigger_type=tuple(filter(None, self.get_query_arguments("triggerType"))),
            state=tuple(filter(None, self.get_query_arguments("state"))),
            entry=self.query("entry"),
            since=self.query("since"),
            until=self.query("until"),
            cursor=self.query("cursor"),
        )
        problem = ""
        try:
            entries = operator.names_like(wanted.entry, most=_MOST_ENTRIES) if wanted.entry else ()
            read = self._skipped if wanted.wants_slots else self._runs
            listed = read(operator, wanted, entries, link)
        except RefusedError as error:  # the form stays, to be corrected
            problem = str(error)
            listed = {"runs": (), "skipped": (), "selectable": False, "words": "", "older": "", "running": {}}
            self.set_status(status_of(error))
        return {
            "of": wanted.entry,
            "filter": wanted,
            "filters": _filter_links(wanted, link),
            "problem": problem,
            "entries": list(operator.schedule)[:_MOST_NAMES],
            "nothing": _nothing(wanted, more=bool(listed["older"])),
            "newest": link(RUNS, **replace(wanted, cursor="").parameters) if wanted.cursor else "",
            **listed,
        }

    def _runs(self, operator: Operator, wanted: RunsQuery, entries: Sequence[str], link: Links) -> Values:
        found = list_runs(
            operator,
            entries,
            triggers=[parse_word(Trigger, "triggerType", one) for one in wanted.trigger_type],
            states=[parse_word(RunState, "state", one) for one in wanted.state],
            since=self.moment("since"),
            until=self.moment("until"),
            limit=ROWS,
            cursor=wanted.cursor or None,
        )
        return {
            "runs": found.runs,
            "running": progress_of(operator, found.runs),
            "skipped": (),
            "selectable": self.why_read_only is None,
            "words": counted(len(found.runs), "run"),
            "older": link(RUNS, **replace(wanted, cursor=found.cursor).parameters) if found.cursor else "",
        }

    def _skipped(self, operator: Operator, wanted: RunsQuery, entries: Sequence[str], link: Links) -> Values:
        since, until = self.moment("since"), self.moment("until")
        found = [
            one
            for one in list_skips(operator, entries, since=since, limit=10 * ROWS)
            if _outcome(one) in wanted.state and (until is None or one.first <= until)
        ][: 4 * ROWS]
        return {
            "runs": (),
            "running": {},
            "skipped": found,
            "outcome": _outcome,
            "selectable": False,
            "words": counted(len(found), "line"),
            "older": "",
        }


def _nothing(wanted: RunsQuery, *, more: bool) -> str:
    if more:
        return "Nothing matches among the newest runs; “Older” continues with those before."
    if any(wanted.parameters.values()):
        return "Nothing matches these filters."
    return "No run is recorded yet. A run appears here as soon as a beat has decided a slot."


def _outcome(one: Skipped) -> str:
    return "missed" if one.reason in SkipReason.of(Severity.LOST) else "skipped"


def _filter_links(wanted: RunsQuery, link: Links) -> list[tuple[str, Sequence[FilterLink]]]:
    first = replace(wanted, cursor="")

    def filter_link(words: str, target: RunsQuery) -> FilterLink:
        return FilterLink(words, link(RUNS, **target.parameters), target == first)

    by_trigger = [filter_link("All", replace(first, trigger_type=()))]
    by_trigger += [filter_link(one.label, replace(first, trigger_type=(str(one),))) for one in TRIGGERS]
    by_state = [filter_link(words, replace(first, state=states)) for words, states in STATES.items()]
    return [("trigger", by_trigger), ("state", by_state)]
