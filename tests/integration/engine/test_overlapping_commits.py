"""While the server executes a commit, the next part is prepared. Whatever the answer is, nothing is lost, and
nothing is sent twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from celery_catchup.engine import advance
from celery_catchup.events import RunDispatched
from celery_catchup.model import PlannedRun
from celery_catchup.store import FencedError, Ledger, StartedCommit
from celery_catchup.store.templates import Template
from celery_catchup.testing import FakeClock
from tests.integration.beats import Beat, Broker

NAMES = [f"e{number}" for number in range(1, 8)]
ENTRIES = {name: ("0 * * * *", {"window": "1d", "overlap_policy": "skip"}) for name in NAMES}


class WatchedBroker(Broker):
    """Calls a function when the message of an entry is made, which is a part of preparing its commit."""

    def __init__(self, log: list[str]) -> None:
        super().__init__()
        self.log, self.during = log, dict[str, Callable[[], object]]()

    def template(self, entry: str, run: PlannedRun, run_id: str, **options: Any) -> Template:
        self.log.append(entry)
        self.during.pop(entry, lambda: None)()
        return super().template(entry, run, run_id, **options)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock("2026-02-07T09:30:00Z")


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What happens, in order: the names of entries that are prepared, "send" and "answer"."""
    log, under_way = list[str](), list[StartedCommit]()
    start, result, drop = Ledger.start_commit, StartedCommit.result, StartedCommit.drop

    def started(*args: Any, **more: Any) -> StartedCommit:
        assert not under_way, "two commits are on their way"
        log.append("send")
        under_way.append(start(*args, **more))
        return under_way[0]

    def ended(end: Callable[[StartedCommit], Any]) -> Callable[[StartedCommit], Any]:
        def method(commit: StartedCommit) -> Any:
            under_way.remove(commit)
            log.append("answer")
            return end(commit)

        return method

    monkeypatch.setattr(advance, "_WORTH_SENDING", 2)
    monkeypatch.setattr(StartedCommit, "is_answered", lambda commit: True)
    monkeypatch.setattr(Ledger, "start_commit", started)
    monkeypatch.setattr(StartedCommit, "result", ended(result))
    monkeypatch.setattr(StartedCommit, "drop", ended(drop))
    yield log
    assert not under_way


@pytest.fixture
def beat(redis_url: str, clock: FakeClock, log: list[str]) -> Beat:
    """A leader whose entries have just become due."""
    beat = Beat(redis_url, clock, ENTRIES, broker=WatchedBroker(log))
    beat.tick()
    clock.advance(hours=1)
    assert beat.engine.lead(beat.engine.now())
    return beat


def during(beat: Beat, entry: str, action: Callable[[], object]) -> None:
    """Let something happen while an entry is prepared; e3 and e4 are while e1 and e2 are committed."""
    assert isinstance(beat.broker, WatchedBroker)
    beat.broker.during[entry] = action


def go_on(beat: Beat) -> None:
    """Tick until the lease of another leader would be over, too."""
    for _ in range(15):
        beat.clock.advance(seconds=1)
        beat.tick()


def each_was_sent_once(beat: Beat) -> bool:
    return sorted(message["entry"] for message in beat.messages()) == NAMES


def lose_next_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server executes the commit, and the answer is lost."""
    result = StartedCommit.result

    def lost(commit: StartedCommit) -> Any:
        monkeypatch.setattr(StartedCommit, "result", result)
        result(commit)
        raise RedisTimeoutError("Timeout reading from socket")

    monkeypatch.setattr(StartedCommit, "result", lost)


def test_the_next_part_is_prepared_before_the_answer_to_the_last_is_read(beat: Beat, log: list[str]) -> None:
    beat.engine.advance(beat.engine.now())

    assert log == ["e1", "e2", "send", "e3", "e4", "answer", "send", "e5", "e6", "answer", "send", "e7",
                   "answer", "send", "answer"]  # fmt: skip
    assert each_was_sent_once(beat)


def test_a_part_grows_while_the_server_takes_its_time(
    beat: Beat, log: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StartedCommit, "is_answered", lambda commit: False)

    beat.engine.advance(beat.engine.now())

    assert log == ["e1", "e2", "send", "e3", "e4", "e5", "e6", "e7", "answer", "send", "answer"]


def test_after_a_lost_answer_the_next_part_is_not_sent(
    beat: Beat, log: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    during(beat, "e3", lambda: lose_next_answer(monkeypatch))

    with pytest.raises(RedisTimeoutError):
        beat.engine.advance(beat.engine.now())

    assert log == ["e1", "e2", "send", "e3", "e4", "answer"]
    go_on(beat)
    assert each_was_sent_once(beat)


def test_after_a_commit_that_never_arrived_everything_is_planned_again(
    beat: Beat, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = Ledger.start_commit

    def lost(*_: Any, **__: Any) -> StartedCommit:
        monkeypatch.setattr(Ledger, "start_commit", start)
        raise RedisConnectionError("Connection reset by peer")

    during(beat, "e4", lambda: monkeypatch.setattr(Ledger, "start_commit", lost))

    with pytest.raises(RedisConnectionError):
        beat.engine.advance(beat.engine.now())

    assert {event.entry for event in beat.told(RunDispatched)} == {"e1", "e2"}
    go_on(beat)
    assert each_was_sent_once(beat)


def test_a_leader_that_is_fenced_does_not_send_what_it_has_prepared(beat: Beat, log: list[str]) -> None:
    leader = beat.keys.leader
    during(beat, "e2", lambda: beat.client.hset(leader, mapping={"owner": "another", "epoch": 9}))

    beat.engine.advance(beat.engine.now())

    assert log == ["e1", "e2", "send", "e3", "e4", "answer"]
    assert not beat.engine.leading
    assert not beat.messages()
    beat.client.delete(leader)
    go_on(beat)
    assert each_was_sent_once(beat)


def test_an_entry_that_another_beat_has_decided_stops_the_parts_after_it(beat: Beat, log: list[str]) -> None:
    now = beat.engine.now()
    during(beat, "e2", lambda: beat.client.hset(beat.keys.decided, "e1", str(now)))

    beat.engine.advance(now)

    assert log == ["e1", "e2", "send", "e3", "e4", "answer"]
    assert not beat.engine.leading
    go_on(beat)
    assert sorted(message["entry"] for message in beat.messages()) == NAMES[1:]


def test_changed_entries_are_planned_again_together_at_the_end(beat: Beat, log: list[str]) -> None:
    during(beat, "e2", lambda: beat.client.zadd(beat.keys.active("e1"), {"a-manual-run": 1}))
    during(beat, "e3", lambda: beat.client.zadd(beat.keys.active("e4"), {"a-manual-run": 1}))

    beat.tick()

    assert log == ["e1", "e2", "send", "e3", "e4", "answer", "send", "e5", "e6", "answer", "send", "e7",
                   "answer", "send", "answer", "send", "answer"]  # fmt: skip
    assert sorted(message["entry"] for message in beat.messages()) == [
        name for name in NAMES if name not in ("e1", "e4")
    ]
    assert [reason for name in ("e1", "e4") for *_, reason in beat.skipped(name)] == 2 * ["guard_blocked"]


def test_a_changed_entry_is_not_lost_when_a_later_part_fails(
    beat: Beat, monkeypatch: pytest.MonkeyPatch
) -> None:
    during(beat, "e2", lambda: beat.client.zadd(beat.keys.active("e1"), {"a-manual-run": 1}))
    during(beat, "e5", lambda: lose_next_answer(monkeypatch))

    with pytest.raises(RedisTimeoutError):
        beat.engine.advance(beat.engine.now())

    go_on(beat)
    assert sorted(message["entry"] for message in beat.messages()) == NAMES[1:]
    assert [reason for *_, reason in beat.skipped("e1")] == ["guard_blocked"]


def test_a_damaged_entry_fails_alone(beat: Beat) -> None:
    during(beat, "e2", lambda: beat.client.set(beat.keys.active("e1"), "not a sorted set"))

    beat.tick()

    assert sorted(message["entry"] for message in beat.messages()) == NAMES[1:]
    beat.client.delete(beat.keys.active("e1"))
    beat.run_for(seconds=120, step=10)
    assert each_was_sent_once(beat)


def test_templates_that_the_server_has_lost_are_sent_again(beat: Beat, log: list[str]) -> None:
    beat.tick()
    beat.client.delete("celery", *(beat.keys.active(name) for name in NAMES))
    beat.clock.advance(hours=1)
    log.clear()
    during(beat, "e4", lambda: beat.client.delete(beat.keys.templates))

    beat.tick()

    assert each_was_sent_once(beat)


@pytest.mark.parametrize("error", [FencedError("renewed too late"), RedisTimeoutError("no answer")], ids=str)
def test_a_commit_is_completed_when_the_tick_fails_meanwhile(
    beat: Beat, log: list[str], error: Exception
) -> None:
    leadership = beat.engine.services.leadership

    def keep() -> bool:
        del vars(leadership)["keep"]
        raise error

    during(beat, "e3", lambda: vars(leadership).update(keep=keep))

    if isinstance(error, FencedError):
        beat.engine.advance(beat.engine.now())
    else:
        with pytest.raises(type(error)):
            beat.engine.advance(beat.engine.now())

    assert log == ["e1", "e2", "send", "e3", "answer"]
    assert {event.entry for event in beat.told(RunDispatched)} == {"e1", "e2"}
    go_on(beat)
    assert each_was_sent_once(beat)


def test_a_process_that_ends_does_not_wait_for_an_answer(beat: Beat, log: list[str]) -> None:
    def end() -> None:
        raise SystemExit

    during(beat, "e3", end)

    with pytest.raises(SystemExit):
        beat.engine.advance(beat.engine.now())

    assert log == ["e1", "e2", "send", "e3", "answer"]
    assert not beat.told(RunDispatched)
    go_on(beat)  # as the next process would
    assert each_was_sent_once(beat)
