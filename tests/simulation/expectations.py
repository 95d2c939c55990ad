"""What was scheduled, by arithmetic of our own: the package is not asked for its slots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from celery.schedules import crontab

HOUR = 3_600_000
MINUTE = 60_000


@dataclass(frozen=True)
class Expected:
    """One entry: at this minute of every so many hours, counted from midnight."""

    name: str
    kind: str
    minute: int
    every: int = 1
    window: str | None = None
    policy: Any = None
    attempts: int = 1
    options: Mapping[str, Any] = field(default_factory=dict)
    excluded_hours: range = range(0)
    """Hours of the day in which its slots must not run."""
    hold_above: int | None = None

    @property
    def chained(self) -> bool:
        """Whether its runs are executed one at a time and in order."""
        return self.kind in ("all", "span")

    @property
    def replaces(self) -> bool:
        """Whether a new run ends those before it."""
        return self.kind in ("cancel_other", "terminate_other")

    @property
    def window_ms(self) -> int | None:
        if self.window is None:
            return None
        return int(self.window[:-1]) * {"h": 1, "d": 24}[self.window[-1]] * HOUR

    @property
    def within_ms(self) -> int | None:
        """Within which time of its slot a run has to succeed."""
        within = self.policy.get("expect_within") if self.policy else None
        return None if within is None else int(within[:-1]) * HOUR

    @property
    def reasons(self) -> set[str]:
        """Why a slot of it may be skipped."""
        own = {
            "latest": {"superseded", "guard_blocked"},
            "skip": {"guard_blocked"},
            "buffer_one": {"guard_blocked"},
            "off": {"catchup_off", "guard_blocked"},
            "cancel_other": {"superseded"},
            "terminate_other": {"superseded"},
            "span": {"covered"},
        }
        excluded = {"excluded"} if self.excluded_hours else set()
        return {"expired", "paused", "already_exists"} | own.get(self.kind, set()) | excluded

    def is_excluded(self, slot: int) -> bool:
        """Whether the slot must not run."""
        return slot // HOUR % 24 in self.excluded_hours

    def slots(self, after: int, until: int) -> Iterator[int]:
        """``(after, until]``, in milliseconds."""
        step = self.every * HOUR
        slot = after // step * step + self.minute * MINUTE
        while slot <= until:
            if slot > after:
                yield slot
            slot += step

    def declared(self) -> dict[str, Any]:
        hours = "*" if self.every == 1 else f"*/{self.every}"
        schedule: Any = f"{self.minute} {hours} * * *"
        if self.kind == "plain":
            schedule = crontab(minute=str(self.minute), hour=hours)
        return {"task": f"proj.{self.name}", "schedule": schedule, "options": dict(self.options)}


ENTRIES = (
    Expected(
        "etl",
        "all",
        0,
        1,
        "1d",
        {
            "window": "1d",
            "overlap_policy": "all",
            "max_attempts": 2,
            "retry_delay": "5m",
            "expect_within": "3h",
        },
        2,
    ),
    Expected(
        "strict", "all", 30, 2, "6h", {"window": "6h", "overlap_policy": "all", "catch_up": {"priority": 9}}
    ),
    Expected(
        "gap",
        "span",
        12,
        1,
        "2d",
        {"window": "2d", "select": "span", "max_span": "6h", "overlap_policy": "all"},
    ),
    Expected(
        "bulk",
        "allow",
        33,
        1,
        "30d",
        {"window": "30d", "overlap_policy": "allow", "hold_above": 4, "catch_up": {"priority": 9}},
        hold_above=4,
    ),
    Expected(
        "shop",
        "all",
        22,
        1,
        "1d",
        {"window": "1d", "overlap_policy": "all", "exclude": "* 1-6 * * *"},
        excluded_hours=range(1, 7),
    ),
    Expected(
        "report",
        "skip",
        15,
        2,
        "12h",
        {"window": "12h", "overlap_policy": "skip", "expect_within": "2h"},
    ),
    Expected("cache", "latest", 45, 2, "12h", {"window": "12h", "select": "latest"}),
    Expected("feed", "allow", 20, 3, "2d", {"window": "2d", "overlap_policy": "allow", "jitter": "10m"}),
    Expected("sync", "buffer_one", 5, 2, "12h", {"window": "12h", "overlap_policy": "buffer_one"}),
    Expected("ping", "off", 25, 2, None, False),
    Expected(
        "late", "all", 10, 6, "12h", {"window": "12h", "overlap_policy": "all"}, options={"countdown": 6000}
    ),
    Expected(
        "brief", "all", 55, 3, "12h", {"window": "12h", "overlap_policy": "all"}, options={"expires": 5400}
    ),
    Expected("swap", "cancel_other", 35, 2, "6h", {"window": "6h", "overlap_policy": "cancel_other"}),
    Expected(
        "renew",
        "terminate_other",
        40,
        2,
        "6h",
        {"window": "6h", "overlap_policy": "terminate_other", "max_attempts": 2, "retry_delay": "5m"},
        2,
    ),
    Expected("plain", "plain", 50, 1),
)
