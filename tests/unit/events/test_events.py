"""Everyone in a process can hear of events, and nobody can spoil it for the others."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any

import pytest

from celery_catchup import events, signals
from celery_catchup.events import (
    CATALOGUE,
    CatchupStarted,
    Event,
    Events,
    Leading,
    RunDied,
    RunDispatched,
    RunSkipped,
    notify_subscribers,
    subscribe,
)
from celery_catchup.events.log_lines import LogLines, process_events
from celery_catchup.model import PlannedRun, RunState, Skip, SkipReason, Slot, Trigger, to_datetime

TEN = 1_770_458_400_000  # 2026-02-07T10:00:00Z
SAMPLES: dict[str, Any] = {
    "bool": True,
    "int": 3,
    "float": 1.5,
    "str": "text",
    "str | None": None,
    "Instant": TEN,
    "PlannedRun": PlannedRun(Slot(TEN), Trigger.CATCHUP, TEN),
    "Skip": Skip(0, TEN, TEN, 1, SkipReason.GUARD_BLOCKED),
    "tuple[Instant, ...]": (TEN,),
    "tuple[str, ...]": ("celery@here",),
    "Trigger": Trigger.CATCHUP,
    "RunState": RunState.DEAD,
    "RunState | None": None,
}
dispatched = RunDispatched("hourly-etl", PlannedRun(Slot(TEN), Trigger.CATCHUP, TEN), "a1b2")


def sample(kind: Any) -> Any:
    """An event of a kind, whatever its fields."""
    return kind(**{field.name: SAMPLES[str(field.type)] for field in fields(kind)})


@pytest.fixture
def listen() -> Iterator[Callable[..., list[Event]]]:
    """Subscribe until the end of the test; what is heard."""
    ends = []

    def hear(*kinds: type) -> list[Event]:
        heard: list[Event] = []
        ends.append(subscribe(heard.append, *kinds))
        return heard

    yield hear
    for end in ends:
        end()


@pytest.mark.parametrize("kind", CATALOGUE, ids=lambda kind: kind.__name__)
def test_every_kind_of_event_is_heard_and_has_its_line_or_its_silence(
    kind: type, listen: Callable[..., list[Event]]
) -> None:
    heard, event = listen(), sample(kind)

    process_events().emit(event)

    assert heard == [event]


def test_every_class_of_the_module_is_in_the_catalogue() -> None:
    own = {value for value in vars(events).values() if getattr(value, "__module__", "") == events.__name__}
    public = {value for value in own if isinstance(value, type) and not value.__name__.startswith("_")}

    assert public - {Events} == set(CATALOGUE)


def test_who_asks_for_some_kinds_hears_of_no_others(listen: Callable[..., list[Event]]) -> None:
    heard = listen(Leading, RunDied)

    notify_subscribers(dispatched)
    notify_subscribers(Leading(7))

    assert heard == [Leading(7)]


def test_a_kind_that_does_not_exist_is_refused() -> None:
    with pytest.raises(TypeError, match="is not an event class; pass classes of celery_catchup.events"):
        subscribe(print, int)


def test_an_ended_subscription_hears_nothing_more() -> None:
    heard: list[Event] = []
    end = subscribe(heard.append)
    end()
    end()

    notify_subscribers(Leading(1))

    assert heard == []


def test_a_subscriber_that_fails_is_named_once_and_harms_nobody(
    listen: Callable[..., list[Event]], caplog: pytest.LogCaptureFixture
) -> None:
    def clumsy(event: Event) -> None:
        raise LookupError("no idea")

    end = subscribe(clumsy)
    heard = listen()
    with caplog.at_level(logging.INFO):
        for epoch in range(3):
            process_events().emit(Leading(epoch))
    end()

    assert heard == [Leading(0), Leading(1), Leading(2)]
    (record,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert "clumsy failed on Leading" in record.getMessage()
    assert record.exc_info is not None


def test_events_of_a_preview_stay_its_own(listen: Callable[..., list[Event]]) -> None:
    heard = listen()

    Events().emit(Leading(1))

    assert heard == []


def test_a_live_run_is_not_put_into_words_that_nobody_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    words: list[str] = []
    monkeypatch.setattr("celery_catchup.events.log_lines.logfmt", lambda msg, **_: words.append(msg) or msg)
    monkeypatch.setattr(logging.getLogger("celery_catchup"), "level", logging.INFO)
    live = RunDispatched("hourly-etl", PlannedRun(Slot(TEN), Trigger.SCHEDULER, TEN), "a1b2")

    LogLines()(live)

    assert words == []


# -- signals ---------------------------------------------------------------------------------


RECEIVED = {
    signals.catchup_started: (
        CatchupStarted(2, 5, TEN, TEN + 1000),
        None,
        {
            "entries": 2,
            "candidates": 5,
            "window_start": to_datetime(TEN),
            "window_end": to_datetime(TEN + 1000),
        },
    ),
    signals.run_dispatched: (
        dispatched,
        "hourly-etl",
        {
            "entry": "hourly-etl",
            "run_id": "a1b2",
            "scheduled_time": to_datetime(TEN),
            "trigger": "catchup",
            "is_catchup": True,
        },
    ),
    signals.run_skipped: (
        RunSkipped("hourly-etl", Skip(0, TEN, TEN + 60_000, 2, SkipReason.CAP_EXCEEDED), True, ()),
        "hourly-etl",
        {
            "entry": "hourly-etl",
            "reason": "cap_exceeded",
            "count": 2,
            "first": to_datetime(TEN),
            "last": to_datetime(TEN + 60_000),
            "is_catchup": True,
        },
    ),
    signals.run_dead: (
        RunDied("hourly-etl", "a1b2", TEN, "ValueError: no"),
        "hourly-etl",
        {
            "entry": "hourly-etl",
            "run_id": "a1b2",
            "scheduled_time": to_datetime(TEN),
            "reason": "ValueError: no",
        },
    ),
}


@pytest.mark.parametrize("signal", RECEIVED, ids=lambda signal: signal.name)
def test_a_signal_tells_what_its_event_tells(signal: Any) -> None:
    event, sender, expected = RECEIVED[signal]
    received: list[dict[str, Any]] = []

    def receive(**told: Any) -> None:
        received.append(told)

    signal.connect(receive)
    try:
        notify_subscribers(event)
    finally:
        signal.disconnect(receive)

    assert received == [{"signal": signal, "sender": sender, **expected}]
    assert set(expected) == signal.providing_args


def test_a_receiver_may_ask_for_one_entry() -> None:
    received: list[str] = []

    def receive(entry: str, **_: Any) -> None:
        received.append(entry)

    signals.run_dead.connect(receive, sender="nightly")
    try:
        for entry in ("hourly-etl", "nightly"):
            notify_subscribers(RunDied(entry, "a1b2", TEN, "lost"))
    finally:
        signals.run_dead.disconnect(receive, sender="nightly")

    assert received == ["nightly"]


def test_a_receiver_that_fails_harms_nobody(listen: Callable[..., list[Event]]) -> None:
    def clumsy(**_: Any) -> None:
        raise LookupError("no idea")

    signals.run_dead.connect(clumsy)
    heard = listen(RunDied)
    try:
        notify_subscribers(RunDied("e", "a1b2", TEN, "lost"))
    finally:
        signals.run_dead.disconnect(clumsy)

    assert len(heard) == 1
