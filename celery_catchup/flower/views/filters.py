"""Filters of the list of runs: links whose query has the names that the HTTP API has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from celery_catchup.flower.links import RUNS, Links
from celery_catchup.flower.views.runs import TRIGGERS

# What the pills say, and the states they mean; the last two are slots that became no run.
STATES: Mapping[str, tuple[str, ...]] = {
    "Any state": (),
    "In flight": ("waiting", "queued", "running"),
    "Succeeded": ("succeeded",),
    "Failed": ("failed", "dead"),
    "Revoked": ("revoked",),
    "Skipped": ("skipped",),
    "Missed": ("missed",),
}


@dataclass(frozen=True, slots=True)
class Choice:
    """One link of several."""

    words: str
    href: str
    chosen: bool


@dataclass(frozen=True, slots=True)
class Filter:
    """What a list of runs is asked for, as it is written in the address."""

    trigger_type: tuple[str, ...] = ()
    state: tuple[str, ...] = ()
    entry: str = ""
    since: str = ""
    until: str = ""
    cursor: str = ""

    def href(self, link: Links) -> str:
        """The address of that list."""
        return link(RUNS, **dict(self.fields()))

    def fields(self) -> Iterator[tuple[str, str | tuple[str, ...]]]:
        """The fields of the query that are set."""
        for name, value in (
            ("triggerType", self.trigger_type),
            ("state", self.state),
            ("entry", self.entry),
            ("since", self.since),
            ("until", self.until),
            ("cursor", self.cursor),
        ):
            if value:
                yield name, value

    def kept(self) -> list[tuple[str, str]]:
        """What a form with entry and times keeps of it."""
        return [("triggerType", one) for one in self.trigger_type] + [("state", one) for one in self.state]

    @property
    def of_slots(self) -> bool:
        """Whether slots that became no run are asked for."""
        return bool({"skipped", "missed"} & set(self.state))


def choices(asked: Filter, link: Links) -> list[tuple[str, Sequence[Choice]]]:
    """The pills: by trigger, by state."""
    first = replace(asked, cursor="")
    by_trigger = [_choice("All", replace(first, trigger_type=()), asked, link)]
    by_trigger += [
        _choice(trigger.label, replace(first, trigger_type=(str(trigger),)), asked, link)
        for trigger in TRIGGERS
    ]
    by_state = [_choice(words, replace(first, state=states), asked, link) for words, states in STATES.items()]
    return [("trigger", by_trigger), ("state", by_state)]


def _choice(words: str, would: Filter, asked: Filter, link: Links) -> Choice:
    return Choice(words, would.href(link), would == replace(asked, cursor=""))
