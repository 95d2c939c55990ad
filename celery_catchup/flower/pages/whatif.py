"""``/catchup/whatif?entry=…``: recorded outages of an entry under another policy, also on its own page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from celery_catchup.config.durations import parse_duration
from celery_catchup.config.policy_choice import PolicyChoice
from celery_catchup.error_text import counted
from celery_catchup.errors import ConfigurationError, TooManySlotsError
from celery_catchup.events.command_lines import command_line
from celery_catchup.flower.markup import duration
from celery_catchup.flower.pages.page import Links, Page, Values, parse_word
from celery_catchup.operations import Operator
from celery_catchup.operations.previews import SlotAction
from celery_catchup.operations.refusals import RefusedError
from celery_catchup.operations.whatif import WhatIf, WhatIfSlot, whatif

ROWS = 60
SINCE = "90d"
CHOICES: Mapping[str, str] = {
    "": "the policy in force",
    PolicyChoice.ALL: "all: every slot",
    PolicyChoice.LATEST: "latest: the newest slot",
    PolicyChoice.SKIP: "skip: the first slot",
    PolicyChoice.OFF: "off: no missed slot",
}


class WhatIfPage(Page):
    """The recorded outages of an entry under another policy."""

    template, active, heading, heavy = "catchup_whatif.html", "schedules", "What if", True

    def show(self, operator: Operator, link: Links, *path: str) -> Values:
        """Play the outages of the query again, or say what is wrong."""
        name = self.query("entry")
        operator.known([name])
        values = {
            "of": name,
            "entry": name,
            **whatif_form(*map(self.query, ("policy", "window", "since"))),
            "found": None,
            "problem": "",
        }
        try:
            found = self._play(operator, name)
        except (RefusedError, TooManySlotsError) as error:
            return {**values, "problem": str(error)}
        except ConfigurationError as error:  # of the requested policy; the app's configuration is valid
            return {**values, "problem": "; ".join(map(str, error.mistakes))}
        return {**values, "found": found}

    def _play(self, operator: Operator, name: str) -> Replayed:
        policy, window = self.query("policy"), self.query("window")
        since = self.moment("since") or self.times.now - parse_duration(SINCE)
        found = whatif(
            operator,
            name,
            window=_window(window) if window else None,
            policy=parse_word(PolicyChoice, "policy", policy) if policy else None,
            since=since,
        )
        given = [("--policy", policy), ("--window", window), ("--since", self.query("since"))]
        words = [word for option, value in given if value for word in (option, value)]
        return _shown(found, command_line("whatif", name, *words), is_cut=found.since > since)


def whatif_form(policy: str = "", window: str = "", since: str = "") -> Values:
    """Return the values of the form."""
    return {
        "whatif_choices": CHOICES,
        "whatif_policy": policy,
        "whatif_window": window,
        "whatif_since": since or SINCE,
    }


@dataclass(frozen=True, slots=True)
class Replayed:
    """The answer as a table and sentences; ``is_cut``: older outages are not kept."""

    policy: str
    words: str
    slots: list[WhatIfSlot]
    more: int
    assumed: str
    command: str
    since: datetime
    is_cut: bool


def _shown(found: WhatIf, command: str, *, is_cut: bool) -> Replayed:
    slots = [*(slot for outage in found.outages for slot in outage.slots), *found.live]
    invented = any(one.starts_at for one in slots if one.recorded is not SlotAction.DISPATCH)
    return Replayed(
        policy=f"select {found.select}, overlap {found.overlap_policy}, window {found.window or 'none'}",
        words=(
            f"{counted(len(found.outages), 'outage')}: {counted(found.runs, 'run')} instead of "
            f"{found.recorded_runs:,}, at most {found.most_at_once:,} at once."
        ),
        slots=slots[:ROWS],
        more=len(slots) - ROWS,
        assumed=duration(found.usual_duration) if invented else "",
        command=command,
        since=found.since,
        is_cut=is_cut,
    )


def _window(text: str) -> timedelta:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise RefusedError(f"window: {error}") from None
