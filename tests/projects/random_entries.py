"""Random entries without a policy, and what is done to them while beat runs; the same for the same seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from celery.beat import BeatLazyFunc
from celery.exceptions import ImproperlyConfigured
from celery.schedules import BaseSchedule, crontab, schedule, solar

Now = Callable[[], datetime]

ZONES = (
    "UTC Europe/Berlin America/New_York Australia/Lord_Howe Asia/Kolkata Asia/Tokyo Africa/Casablanca".split()
)
DAYS = (
    "2026-03-28T21:05:00Z 2026-10-24T21:05:00Z 2026-03-08T02:17:30Z 2026-11-01T00:44:10Z "
    "2026-04-04T09:00:00Z 2026-02-28T12:47:00Z 2026-12-31T11:59:59Z 2026-06-30T23:59:58Z"
).split()
CLOCK_CHANGES = (
    ("Europe/Berlin", "2026-03-28T23:30:00Z"),
    ("Europe/Berlin", "2026-10-24T23:30:00Z"),
    ("America/New_York", "2026-03-08T05:30:00Z"),
    ("America/New_York", "2026-11-01T04:30:00Z"),
    ("Australia/Lord_Howe", "2026-04-04T13:30:00Z"),
    ("Australia/Lord_Howe", "2026-10-03T14:00:00Z"),
)
"""Zones, and a moment one and a half hours before their clocks change."""
ORDINARY = 20
"""From this seed on, the clocks change while beat runs."""
QUEUES = ("celery", "reports", "bulk")
OTHER_TIMES = ("naive-local", "naive-tokyo", "hours-ahead", "hours-behind", "seconds-ahead")
"""Clocks that tell another time; all entries of an app have the same, see the page on differences."""
SAME_TIME = ("tokyo", "new-york", "naive-utc")
WAYS = ("add", "update_from_dict", "replace", "come_back", "pop", "new_args")


@dataclass(frozen=True)
class Change:
    """Something that other code does to the scheduler, so long after the start."""

    after: timedelta
    way: str
    name: str
    fields: dict[str, Any]

    def make(self, scheduler: Any) -> None:
        if self.way in ("add", "come_back"):
            scheduler.add(name=self.name, **self.fields)
        elif self.way in ("update_from_dict", "replace"):
            scheduler.update_from_dict({self.name: self.fields})
        elif self.way == "pop":
            scheduler.schedule.pop(self.name, None)
        elif self.name in scheduler.schedule:
            scheduler.schedule[self.name].args = self.fields["args"]


class Case:
    """An app's settings, its entries, and their changes.

    ``clocks`` gives a ``nowfun`` by its name. A ``forgetful`` scheduler keeps its entries in memory; Celery's
    file does not keep the clock of a crontab, nor what is done to an entry that the file was read back from.
    """

    def __init__(
        self,
        seed: int,
        *,
        entries: int,
        duration: timedelta,
        clocks: Callable[[str], Now],
        today: Callable[[], str],
    ) -> None:
        self._chosen = random.Random(seed)
        self._clocks, self._today = clocks, today
        self.forgetful = bool(seed % 2)
        self.clock = self._chosen.choice([None, *OTHER_TIMES]) if self.forgetful else None
        self.start = datetime.fromisoformat(self._chosen.choice(DAYS))
        self.settings: dict[str, Any] = {
            "timezone": self._chosen.choice([*ZONES, None]),
            "enable_utc": self._chosen.random() < 0.7,
            "beat_cron_starting_deadline": self._chosen.choice([None, None, 600]),
        }
        if seed >= ORDINARY:
            self.settings["timezone"], start = CLOCK_CHANGES[(seed - ORDINARY) // 2 % len(CLOCK_CHANGES)]
            self.start, self.clock = datetime.fromisoformat(start), None
        self.beat_schedule = {name: self._entry(name) for name in (f"entry-{n}" for n in range(entries))}
        # A crontab that comes in the second pass of a repeated hour is sent without end, by both.
        changes = self._random_changes(max(8, entries // 4), duration)
        zone = ZoneInfo(self.settings["timezone"] or "UTC")
        self.changes = [one for one in changes if not (self.start + one.after).astimezone(zone).fold]

    def _random_changes(self, number: int, duration: timedelta) -> list[Change]:
        names, gone, made = sorted(self.beat_schedule), list[str](), list[Change]()
        for n, share in enumerate(sorted(self._chosen.random() for _ in range(number))):
            after = timedelta(milliseconds=round(share * duration / timedelta(milliseconds=1)))
            way = self._chosen.choice(WAYS)
            if way == "new_args" and not self.forgetful:
                way = "pop"
            if way == "come_back":
                name = gone.pop() if gone else f"new-{n}"
            else:
                name = f"new-{n}" if way in ("add", "update_from_dict") else self._chosen.choice(names)
            made.append(Change(after, way, name, self._entry(name, mark=f"change {n}")))
            if way == "pop":
                names.remove(name)
                gone.append(name)
            elif name not in names:
                names.append(name)
        return made

    def _entry(self, name: str, mark: str = "declared") -> dict[str, Any]:
        """An entry whose messages say whose they are."""
        entry: dict[str, Any] = {
            "task": self._chosen.choice(["proj.known", "proj.other", "elsewhere.unknown"]),
            "schedule": self._schedule(),
            "args": [name, mark],
            "kwargs": self._chosen.choice([{}, {"tenant": "eu"}, {"deep": {"list": [1, None, "ü"]}}]),
            "options": self._options(),
        }
        if self._chosen.random() < 0.05:
            entry["args"] = [name, BeatLazyFunc(self._today)]
        if isinstance(entry["schedule"], timedelta) and self._chosen.random() < 0.4:
            entry["relative"] = True
        return entry

    def _options(self) -> dict[str, Any]:
        every = {
            "queue": self._chosen.choice(QUEUES),
            "priority": self._chosen.randrange(10),
            "expires": self._chosen.randint(60, 7200),
            "countdown": self._chosen.randint(1, 600),
            "headers": {"team": self._chosen.choice(["sales", "ops"])},
            "ignore_result": True,
            "time_limit": 30,
            "shadow": "another name",
            "routing_key": "some.key",
        }
        return {
            name: every[name]
            for name in self._chosen.sample(sorted(every), self._chosen.choice([0, 0, 1, 3]))
        }

    def _schedule(self) -> Any:
        kinds = [self._crontab, self._crontab, self._crontab, self._interval, self._interval, self._solar]
        if self.clock is not None:
            now = self._clocks(self.clock)
            return self._chosen.choice([self._crontab, self._clocked, self._solar])(nowfun=now)
        if self._chosen.random() < 0.15:
            now = self._clocks(self._chosen.choice(SAME_TIME))
            return self._chosen.choice([self._crontab, self._clocked] if self.forgetful else [self._clocked])(
                nowfun=now
            )
        return self._chosen.choice(kinds)()

    def _crontab(self, **more: Any) -> BaseSchedule:
        pick = self._chosen.choice
        return crontab(
            minute=self._field(0, 59),
            hour=pick(["*", "*", self._field(0, 23)]),
            day_of_week=pick(["*", "*", "*", "mon-fri", "sat,sun", "0", "*/2"]),
            day_of_month=pick(["*", "*", "*", "*", "1", "1-15", "*/3", "28"]),
            month_of_year=pick(["*", "*", "*", "*", "*/2", "3,10", "1-6"]),
            **more,
        )

    def _field(self, low: int, high: int) -> str:
        one, other = sorted(self._chosen.sample(range(low, high + 1), 2))
        steps = self._chosen.choice([2, 3, 5, 7, 15, 20])
        some = ",".join(str(n) for n in sorted(self._chosen.sample(range(low, high + 1), 3)))
        return self._chosen.choice([str(one), f"*/{steps}", f"{one}-{other}", f"{one}-{other}/{steps}", some])

    def _interval(self) -> Any:
        seconds = self._chosen.choice([47, 90, 600, 1234.567, 1800, 3600, 7200, 10800, 86400 / 7, 86400])
        odd = self._chosen.choice([0, 0, self._chosen.randint(1, 500)])
        return self._chosen.choice(
            [timedelta(seconds=seconds + odd), timedelta(seconds=seconds), seconds + odd]
        )

    def _clocked(self, nowfun: Now) -> BaseSchedule:
        relative = self._chosen.random() < 0.4
        return schedule(timedelta(minutes=self._chosen.randint(3, 400)), relative=relative, nowfun=nowfun)

    def _solar(self, **more: Any) -> Any:
        event = self._chosen.choice(["sunrise", "sunset", "solar_noon", "dawn_civil", "dusk_astronomical"])
        try:
            return solar(event, self._chosen.randint(-55, 75), self._chosen.randint(-180, 180), **more)
        except ImproperlyConfigured:  # without ephem
            return self._crontab(**more)
