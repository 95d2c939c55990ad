"""A beat is away from 09:05 to 12:02; what the next one sends, records and says, policy by policy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from celery_catchup.store.store import read_span
from tests import services
from tests.acceptance.nursery import Nursery
from tests.acceptance.processes import Process
from tests.acceptance.sites import DAY, Site, at, instant

NINE, TEN, ELEVEN, NOON = (at(f"{hour:02}:00:00") for hour in (9, 10, 11, 12))
HOURLY = "0 * * * *"


class Outage:
    """The place after the second beat has caught up; it is still running."""

    def __init__(self, site: Site) -> None:
        self.site = site
        site.declare(
            {
                "first": HOURLY,
                "every": HOURLY,
                "newest": HOURLY,
                "never": HOURLY,
                "at-once": HOURLY,
                "stock": {"$crontab": {"minute": 0}},
                "stock-interval": {"schedule": {"$every": 1800}, "args": ["interval"]},
            },
            catchup_entries={
                "first": "6h",
                "every": {"window": "6h", "overlap_policy": "all"},
                "newest": {"window": "6h", "select": "latest"},
                "never": False,
                "at-once": {"window": "6h", "overlap_policy": "allow"},
            },
        )
        site.set_clock("09:04:50")
        self.before = site.leader()
        site.until_a_tick_later()
        self.before.stop()
        self.watermark = site.watermark()
        site.set_clock("12:02:00")
        self.beat = site.leader()
        self.beat.until_it_says("Catch-up completed")
        site.until_a_tick_later()

    def lines(self, entry: str) -> list[str]:
        """What the second beat said of one entry, without the time of the line."""
        return [line for line in said(self.beat) if f" entry={entry} " in line]


def said(beat: Process) -> list[str]:
    return [line.partition("] ")[2] for line in beat.text().splitlines() if "msg=" in line]


@pytest.fixture(scope="module")
def outage(tmp_path_factory: pytest.TempPathFactory, nursery: Nursery) -> Iterator[Outage]:
    with services.private_server() as server:
        site = Site(tmp_path_factory.mktemp("outage"), server.url(), nursery)
        try:
            yield Outage(site)
        finally:
            site.close()


def skipped(entry: str, slot: str, reason: str) -> str:
    recover = f'"celery -A tests.projects.declared catchup backfill {entry} --start {slot} --end {slot}"'
    return f'msg="Catch-up run skipped" entry={entry} scheduled_time={slot} reason={reason} recover={recover}'


def dispatched(site: Site, entry: str, slot: str) -> str:
    run = site.identity(entry, slot)
    return f'msg="Catch-up run dispatched" entry={entry} scheduled_time={slot} run_id={run}'


def planned(entry: str, policy: str, window: str = "6h") -> str:
    return f'msg="Catch-up planned" entry={entry} overlap_policy={policy} candidates=3 window={window}'


# -- what is sent ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "slots"),
    [
        ("first", [TEN]),
        ("every", [TEN]),
        ("newest", [NOON]),
        ("never", []),
        ("at-once", [TEN, ELEVEN, NOON]),
    ],
    ids=["skip-sends-the-first", "all-sends-the-first", "latest", "off-sends-nothing", "allow-sends-all"],
)
def test_the_queue_holds_what_the_policy_promises(outage: Outage, entry: str, slots: list[str]) -> None:
    messages = outage.site.messages(entry)

    assert [message.told for message in messages] == [(slot, True, "catchup") for slot in slots]
    identities = [outage.site.identity(entry, slot) for slot in slots]
    assert [message.run_id for message in messages] == identities
    assert [message.id for message in messages] == identities


def test_a_message_tells_the_interval_it_is_for(outage: Outage) -> None:
    headers = [message.headers for message in outage.site.messages("at-once")]

    told = [(one["data_interval_start"], one["data_interval_end"]) for one in headers]
    assert told == [(NINE, TEN), (TEN, ELEVEN), (ELEVEN, NOON)]


def test_an_entry_without_a_policy_has_one_late_run_as_under_celerys_scheduler(outage: Outage) -> None:
    stock = [message for message in outage.site.messages() if message.entry is None]

    cron, interval = ([m for m in stock if m.args == args] for args in ([], ["interval"]))
    assert [message.told for message in cron] == [(NOON, False, "scheduler")]
    assert [message.told[1:] for message in interval] == [(False, "scheduler")]
    assert not any("catchup_run_id" in message.headers for message in stock)


# -- what is recorded --------------------------------------------------------------------------


def test_all_has_the_later_runs_wait_in_the_ledger(outage: Outage) -> None:
    runs = outage.site.ledger("every")

    assert [run["slot"] for run in runs] == [instant(slot) for slot in (TEN, ELEVEN, NOON)]
    assert [run["state"] for run in runs] == ["queued", "waiting", "waiting"]
    assert {run["trigger"] for run in runs} == {"catchup"}


@pytest.mark.parametrize(
    ("entry", "spans"),
    [
        ("first", [(ELEVEN, NOON, 2, "guard_blocked")]),
        ("every", []),
        ("newest", [(TEN, ELEVEN, 2, "superseded")]),
        ("never", [(TEN, NOON, 3, "catchup_off")]),
    ],
)
def test_what_does_not_run_is_recorded_with_its_reason(
    outage: Outage, entry: str, spans: list[tuple[Any, ...]]
) -> None:
    stored: Any = outage.site.redis.zrange(outage.site.keys.skips(entry), 0, -1)

    found = [read_span(text) for text in stored]
    assert [(s["first"], s["last"], s["count"], s["reason"]) for s in found] == [
        (instant(first), instant(last), count, reason) for first, last, count, reason in spans
    ]


# -- what is said, at the default log level ----------------------------------------------------


def test_the_log_tells_when_the_catch_up_starts_and_how_it_ends(outage: Outage) -> None:
    lines = [line for line in said(outage.beat) if "Catch-up started" in line or "Catch-up completed" in line]

    time = rf"({DAY}T\d\d:\d\d:\d\d(?:\.\d{{3}})?Z)"
    pattern = (
        r'msg="Catch-up started" entries_with_catchup=5 total_candidates=15 '
        rf"window_start={time} window_end={time}"
    )
    start = re.fullmatch(pattern, lines[0])
    assert start, lines
    assert instant(start[1]) == outage.watermark
    assert NOON <= start[2] <= at("12:03:00")
    assert re.fullmatch(r'msg="Catch-up completed" dispatched=8 skipped=7 duration=\d\.\ds', lines[1])
    assert len(lines) == 2


def test_the_log_of_skip_names_the_run_and_the_command_that_recovers_the_others(outage: Outage) -> None:
    assert outage.lines("first") == [
        planned("first", "skip"),
        dispatched(outage.site, "first", TEN),
        skipped("first", ELEVEN, "guard_blocked"),
        skipped("first", NOON, "guard_blocked"),
    ]


def test_the_log_of_all_names_every_run(outage: Outage) -> None:
    assert outage.lines("every") == [
        planned("every", "all"),
        *(dispatched(outage.site, "every", slot) for slot in (TEN, ELEVEN, NOON)),
    ]


def test_the_log_of_latest_names_the_newest_run_and_what_it_stands_for(outage: Outage) -> None:
    assert outage.lines("newest") == [
        planned("newest", "skip"),
        dispatched(outage.site, "newest", NOON),
        skipped("newest", TEN, "superseded"),
        skipped("newest", ELEVEN, "superseded"),
    ]


def test_catch_up_that_is_off_is_not_silent_about_what_is_lost(outage: Outage) -> None:
    assert outage.lines("never") == [
        planned("never", "allow", window="none"),
        *(skipped("never", slot, "catchup_off") for slot in (TEN, ELEVEN, NOON)),
    ]


def test_the_lines_come_in_the_order_of_the_story(outage: Outage) -> None:
    words = [line.split('"')[1] for line in said(outage.beat)]

    story = ["Leading", "Dispatch", "Catch-up started", "Catch-up planned"]
    assert list(dict.fromkeys(words))[:4] == story
    assert words[-1] == "Catch-up completed"


def test_a_beat_that_missed_nothing_says_nothing_of_catching_up(outage: Outage) -> None:
    assert [line.split('"')[1] for line in said(outage.before)] == ["Leading", "Dispatch"]


def test_the_catch_up_is_over_in_the_state_that_status_shows(outage: Outage) -> None:
    stored: Any = outage.site.redis.hgetall(outage.site.keys.scheduler)

    assert (stored["catchup_running"], stored["catchup_total"]) == ("0", "15")
    assert (stored["catchup_dispatched"], stored["catchup_skipped"]) == ("8", "7")


# -- with a worker -----------------------------------------------------------------------------


def test_a_worker_executes_the_missed_slots_in_order_and_never_two_at_once(site: Site) -> None:
    site.declare(
        {"every": {"schedule": HOURLY, "kwargs": {"seconds": 0.2}}},
        catchup_entries={"every": {"window": "6h", "overlap_policy": "all"}},
        imports=["celery_catchup.worker"],
    )
    site.set_clock("09:04:50")
    before = site.leader()
    site.until_a_tick_later()
    before.stop()
    worker = site.worker()
    site.set_clock("12:02:00")
    site.leader().until_it_says("Catch-up completed")

    diary = site.until_noted(6)

    assert [(what, slot) for what, slot, *_ in diary] == [
        (what, slot) for slot in (TEN, ELEVEN, NOON) for what in ("begin", "end")
    ]
    site.until_states("every", ["succeeded"] * 3)
    assert worker.alive
