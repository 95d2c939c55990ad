"""A delay is not a loss: runs that no worker has claimed wait, however long, and are never given up."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from celery_catchup.events import EntryFailed, RunDied, RunExpired, RunResent, RunUnreported
from celery_catchup.model import RunState
from celery_catchup.store import Evidence, OutboxRun
from celery_catchup.store.leases import ClaimOutcome, ReportOutcome
from celery_catchup.store.recovery import Recovered
from celery_catchup.testing import FakeClock
from tests.integration.beats import QUEUE, Beat, Broker

HOURLY = "0 * * * *"
TEN, ELEVEN, NOON = (f"2026-02-07T{hour}:00:00Z" for hour in (10, 11, 12))
MINUTE = 60_000
PLUGIN, PLAIN = "with@host", "without@host"


def a_sending(run_id: str, timing: dict[str, int] | None = None, *, sends: int = 1) -> OutboxRun:
    """A message that the broker has confirmed, with countdown and expiry of its template."""
    return OutboxRun(run_id, {"sends": sends}, timing or {})


class Fleet:
    """A beat after an outage of three slots, and workers that are seen or not; time passes on the server."""

    def __init__(self, url: str, broker: Broker, policy: dict[str, Any]) -> None:
        clock = FakeClock("2026-02-07T09:04:00Z")
        entries = {"etl": (HOURLY, {"window": "6h", "overlap_policy": "all", **policy})}
        first = Beat(url, clock, entries, broker=broker)
        first.tick()
        first.engine.resign()
        clock.set("2026-02-07T12:02:00Z")
        self.beat = Beat(url, clock, entries, broker=broker)
        self.beat.tick()
        self.broker = broker
        self.now = int(time.time() * 1000)

    def workers(self, *, plugin: bool = False, plain: bool = False) -> None:
        """Workers are seen just now."""
        workers = self.beat.workers
        workers.now_ms = self.now
        if plugin:
            workers.record_alive(PLUGIN, [QUEUE])
        if plain:
            workers.note_consumers({PLAIN: [QUEUE]}, now=self.now)

    def pass_minutes(self, minutes: int, **seen: bool) -> None:
        """Let time pass minute by minute, with these workers in sight."""
        for _ in range(minutes):
            self.now += MINUTE
            self.workers(**seen)
            self.reap()

    def reap(self) -> None:
        self.beat.recovery.now_ms = self.now
        self.beat.engine.services.reaper.reap(self.now)

    def claim(self, run_id: str, owner: str = "a", **more: Any) -> ClaimOutcome:
        self.beat.leases.now_ms = self.now
        claim = self.beat.leases.claim(run_id, owner=owner, task="proj.etl", worker="w", **more)
        return claim.answer

    def end(self, run_id: str, owner: str = "a") -> None:
        self.beat.leases.finish(run_id, entry="etl", owner=owner, state=RunState.SUCCEEDED)

    def drain(self) -> None:
        """A worker claims a message of the same queue that was sent now."""
        self.beat.client.hset(self.beat.keys.drained, QUEUE, self.now)

    @property
    def first(self) -> str:
        return str(self.beat.ledger.runs_of("etl")[0]["id"])

    @property
    def states(self) -> list[str]:
        return [run["state"] for run in self.beat.ledger.runs_of("etl")]

    def told(self, kind: Any) -> list[Any]:
        return self.beat.told(kind)


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
def fleet(redis_url: str, broker: Broker) -> Fleet:
    return Fleet(redis_url, broker, {})


@pytest.mark.parametrize("seen", [{}, {"plugin": True}], ids=["no worker", "busy workers"])
def test_a_run_in_a_queue_that_does_not_drain_waits_for_ever(fleet: Fleet, seen: dict[str, bool]) -> None:
    fleet.workers(plugin=True)
    fleet.broker.held = 1

    fleet.pass_minutes(36 * 60, **seen)

    assert fleet.beat.sent() == [TEN]
    assert fleet.states == ["queued", "waiting", "waiting"]
    assert fleet.told(RunDied) + fleet.told(RunResent) + fleet.told(RunUnreported) == []
    assert fleet.claim(fleet.first) is ClaimOutcome.GRANTED


def test_a_queue_that_nobody_has_ever_consumed_is_waited_for(fleet: Fleet) -> None:
    fleet.broker.held = 1

    fleet.pass_minutes(100)

    assert fleet.states == ["queued", "waiting", "waiting"]


def test_all_workers_may_stop_for_a_night(fleet: Fleet) -> None:
    fleet.workers(plugin=True)
    fleet.beat.workers.leave(PLUGIN)

    fleet.pass_minutes(12 * 60)

    assert fleet.beat.sent() == [TEN]
    assert fleet.states == ["queued", "waiting", "waiting"]


def test_a_message_is_sent_again_when_later_ones_were_claimed_for_a_while(fleet: Fleet) -> None:
    fleet.workers(plugin=True)
    fleet.now += MINUTE
    fleet.drain()

    fleet.pass_minutes(4, plugin=True)
    early = fleet.beat.sent()
    fleet.pass_minutes(3, plugin=True)

    assert (early, fleet.beat.sent()) == ([TEN], [TEN, TEN])
    assert [event.reason for event in fleet.told(RunResent)] == ["its message was lost"]
    assert {message["id"] for message in fleet.beat.messages()} == {fleet.first}


def test_a_message_of_low_priority_is_not_lost_when_later_ones_of_a_higher_one_were_claimed(
    redis_url: str, broker: Broker
) -> None:
    broker.timing = {"priority": 9}
    fleet = Fleet(redis_url, broker, {})
    fleet.workers(plugin=True)
    fleet.now += MINUTE
    fleet.drain()
    fleet.pass_minutes(60, plugin=True)
    waiting = fleet.beat.sent()

    fleet.beat.client.hset(fleet.beat.keys.drained, f"{QUEUE}\x1f9", fleet.now)
    fleet.pass_minutes(90, plugin=True)

    assert (waiting, fleet.beat.sent()) == ([TEN], [TEN, TEN])


def test_a_lost_message_of_low_priority_is_sent_again_beside_live_ones_that_always_wait(
    redis_url: str, broker: Broker
) -> None:
    broker.timing = {"priority": 9}
    fleet = Fleet(redis_url, broker, {})
    broker.depths = {0: 5, 9: 1}
    fleet.pass_minutes(60, plugin=True)
    waiting = fleet.beat.sent()

    broker.depths = {0: 5, 9: 0}
    fleet.pass_minutes(60, plugin=True)

    assert (waiting, fleet.beat.sent()[:2]) == ([TEN], [TEN, TEN])


def test_a_claim_counts_for_messages_of_its_priority(fleet: Fleet) -> None:
    fleet.claim(fleet.first, routing_key=QUEUE, priority=9)

    assert list(fleet.beat.recovery.drained([QUEUE, f"{QUEUE}\x1f9"])) == [f"{QUEUE}\x1f9"]


def test_a_message_is_sent_again_when_its_queue_is_empty_and_workers_are_there(fleet: Fleet) -> None:
    fleet.broker.held = 0

    fleet.pass_minutes(8, plugin=True)

    assert fleet.beat.sent() == [TEN, TEN]


@pytest.mark.parametrize(("took", "copies"), [(0.0, 1), (1200.0, 0)])
def test_a_claim_shows_that_its_queue_drains_up_to_the_publication_not_the_confirmation(
    redis_url: str, took: float, copies: int
) -> None:
    """The run that is claimed was confirmed after the other one; only if it was also published after it,
    the other message is lost."""
    entries = {name: (HOURLY, {"window": "6h", "overlap_policy": "allow"}) for name in ("etl", "sync")}
    clock, broker = FakeClock("2026-02-07T09:59:59Z"), Broker(atomic=False)
    broker.down = True
    beat = Beat(redis_url, clock, entries, broker=broker)
    beat.tick()
    clock.advance(seconds=2)
    with pytest.raises(Exception, match="the broker is down"):
        beat.tick()
    (first,), (second,) = (beat.ledger.runs_of(name) for name in entries)
    beat.ledger.published([a_sending(first["id"])])
    beat.ledger.now_ms = beat.leases.now_ms = int(time.time() * 1000) + 10 * MINUTE

    beat.ledger.published([a_sending(second["id"])], took=took)
    beat.leases.claim(second["id"], owner="a", task="proj.sync", worker="w", routing_key=QUEUE)

    drained, sent = beat.recovery.drained([QUEUE]), beat.ledger.run(first["id"])["sent"]
    assert (drained.get(QUEUE, 0) > sent) is bool(copies)


def test_nothing_is_sent_into_an_empty_queue_without_workers(fleet: Fleet) -> None:
    fleet.workers(plugin=True)
    fleet.broker.held = 0

    fleet.pass_minutes(300)

    assert fleet.beat.sent() == [TEN]


def test_copies_come_at_growing_intervals(fleet: Fleet) -> None:
    fleet.broker.held = 0  # whatever is sent is gone

    fleet.pass_minutes(3 * 60, plugin=True)

    assert len(fleet.beat.sent()) == 6  # after about 5, 10, 20, 40 and 80 minutes
    assert fleet.states == ["queued", "waiting", "waiting"]


def test_evidence_about_an_earlier_message_sends_no_copy_of_a_later_one(fleet: Fleet) -> None:
    """The request to send it again arrives late, when it was sent again already."""
    recovery, lead = fleet.beat.recovery, fleet.beat.engine.services.leadership
    fleet.workers(plugin=True)
    recovery.now_ms = fleet.now + 24 * 60 * MINUTE
    judged = {"lane": "etl", "evidence": Evidence.LOST, "sends": 1}
    once = recovery.recover(lead, fleet.first, **judged)

    recovery.now_ms += 24 * 60 * MINUTE
    late = recovery.recover(lead, fleet.first, **judged)

    assert (once, late) == (Recovered.SENT, Recovered.ALIVE)
    assert fleet.beat.sent() == [TEN, TEN]


def test_a_worker_that_has_received_a_message_keeps_it_from_being_sent_again(fleet: Fleet) -> None:
    fleet.broker.held = 0
    fleet.drain()

    for _ in range(60):
        fleet.pass_minutes(1, plugin=True)
        fleet.beat.leases.now_ms = fleet.now
        assert fleet.beat.leases.renew([(fleet.first, "")]) == []

    assert fleet.beat.sent() == [TEN]


def test_one_worker_without_the_plugin_causes_no_copies(fleet: Fleet) -> None:
    fleet.broker.held = 0
    fleet.drain()

    fleet.pass_minutes(3 * 60, plugin=True, plain=True)

    assert fleet.beat.sent() == [TEN]
    assert fleet.states == ["queued", "waiting", "waiting"]


def test_where_no_worker_ever_had_the_plugin_the_chain_goes_on_slowly(fleet: Fleet) -> None:
    fleet.broker.held = 0

    fleet.pass_minutes(12, plain=True)

    assert fleet.beat.sent() == [TEN, ELEVEN, NOON]
    assert [event.reason for event in fleet.told(RunUnreported)] == [
        "no worker of its queue ever had the plugin"
    ] * 2


def test_a_run_that_is_taken_to_have_run_can_still_be_claimed(fleet: Fleet) -> None:
    fleet.broker.held = 0
    fleet.pass_minutes(6, plain=True)

    assert fleet.claim(fleet.first) is ClaimOutcome.GRANTED
    fleet.end(fleet.first)
    assert fleet.states[0] == "succeeded"


@pytest.fixture
def backlog(fleet: Fleet) -> Fleet:
    """Workers without the plugin are seen, but the messages of two runs of the chain still wait."""
    fleet.broker.held = 2
    fleet.pass_minutes(100, plain=True)
    assert fleet.beat.sent() == [TEN, ELEVEN]
    return fleet


def test_a_run_that_was_wrongly_assumed_to_have_run_goes_before_its_successor(backlog: Fleet) -> None:
    first, second, _ = (str(run["id"]) for run in backlog.beat.ledger.runs_of("etl"))

    answers = [backlog.claim(first), backlog.claim(second, "b")]
    backlog.end(first)

    assert answers == [ClaimOutcome.GRANTED, ClaimOutcome.HELD]
    assert backlog.states == ["succeeded", "queued", "waiting"]
    assert backlog.beat.sent() == [TEN, ELEVEN, ELEVEN]
    assert backlog.claim(second, "b") is ClaimOutcome.GRANTED


def test_a_run_that_was_wrongly_assumed_to_have_run_waits_for_a_successor_that_runs(backlog: Fleet) -> None:
    first, second, _ = (str(run["id"]) for run in backlog.beat.ledger.runs_of("etl"))

    answers = [backlog.claim(second, "b"), backlog.claim(first)]
    backlog.end(second, "b")

    assert answers == [ClaimOutcome.GRANTED, ClaimOutcome.HELD]
    assert backlog.states == ["queued", "succeeded", "waiting"]
    assert backlog.beat.sent() == [TEN, ELEVEN, TEN]


def test_a_run_that_rejoins_its_chain_is_missed_when_its_worker_dies_before_the_claim(backlog: Fleet) -> None:
    first = backlog.first
    backlog.beat.leases.now_ms = backlog.now

    backlog.beat.leases._rejoin(first, lane="etl")

    assert backlog.beat.client.zscore(backlog.beat.keys.leases, first) is not None
    assert backlog.claim(first) is ClaimOutcome.GRANTED


def test_a_countdown_is_no_delay(redis_url: str, broker: Broker) -> None:
    broker.timing, broker.held = {"countdown_ms": 120 * MINUTE}, 0
    fleet = Fleet(redis_url, broker, {})

    fleet.pass_minutes(124, plugin=True)
    early = fleet.beat.sent()
    fleet.pass_minutes(4, plugin=True)

    assert (early, fleet.beat.sent()) == ([TEN], [TEN, TEN])


@pytest.mark.parametrize("policy", ["all", "allow"])
def test_an_expired_run_is_recorded_and_its_chain_goes_on(
    redis_url: str, broker: Broker, policy: str
) -> None:
    broker.timing, broker.held = {"expires_ms": 2000}, 0
    fleet = Fleet(redis_url, broker, {"overlap_policy": policy})

    fleet.pass_minutes(10, plugin=True)

    runs = fleet.beat.ledger.runs_of("etl")
    assert fleet.beat.sent() == [TEN, ELEVEN, NOON]
    assert [(run["state"], run["error"]) for run in runs] == [
        ("revoked", "expired: no worker started it in time")
    ] * 3
    assert len(fleet.told(RunExpired)) == 3


@pytest.mark.parametrize("publishes", ["leader", "worker"])
def test_a_run_in_the_outbox_has_no_lease_until_the_broker_has_it(redis_url: str, publishes: str) -> None:
    broker = Broker(atomic=False)
    broker.down = True
    clock = FakeClock("2026-02-07T09:59:59Z")
    beat = Beat(redis_url, clock, {"etl": (HOURLY, {"window": "6h", "overlap_policy": "all"})}, broker=broker)
    beat.tick()
    clock.advance(seconds=2)
    with pytest.raises(Exception, match="the broker is down"):
        beat.tick()
    (run,) = beat.ledger.runs_of("etl")

    assert beat.client.zcard(beat.keys.leases) == 0
    assert "sent" not in run
    broker.down = False
    if publishes == "leader":
        beat.tick()
    else:
        beat.ledger.published([a_sending(run["id"])])

    assert beat.client.zcard(beat.keys.leases) == 1
    assert beat.ledger.outbox(10) == []
    assert abs(beat.ledger.runs_of("etl")[0]["sent"] - time.time() * 1000) < 10_000


@pytest.mark.parametrize(
    "timing", [{}, {"countdown_ms": MINUTE}, {"countdown_ms": 1, "expires_ms": 2 * MINUTE}]
)
def test_a_confirmation_is_recorded_alike_however_the_record_was_written(
    redis_url: str, timing: dict[str, int]
) -> None:
    broker, clock = Broker(atomic=False), FakeClock("2026-02-07T09:59:59Z")
    broker.down = True
    beat = Beat(
        redis_url, clock, {"etl": (HOURLY, {"window": "6h", "overlap_policy": "allow"})}, broker=broker
    )
    beat.tick()
    clock.advance(seconds=2)
    with pytest.raises(Exception, match="the broker is down"):
        beat.tick()
    (run,) = beat.ledger.runs_of("etl")
    run_id, unsent = run["id"], beat.ledger.run(run["id"])

    def confirm() -> tuple[dict[str, Any], float]:
        """Return the record, with times as they are after the confirmation, and the lease."""
        begun = time.time() * 1000
        beat.ledger.published([a_sending(run_id, timing)])
        found, lease = beat.ledger.run(run_id), beat.client.zscore(beat.keys.leases, run_id)
        times = {name: round((found[name] - begun) / 5000) for name in ("sent", "expires") if name in found}
        return {"countdown": 0, **found, **times}, round((lease - begun) / 5000)

    as_committed = confirm()
    assert beat.ledger.outbox(1) == []
    beat.client.hset(beat.keys.ledger, run_id, json.dumps(dict(sorted(unsent.items()))))
    beat.client.zadd(beat.keys.outbox, {run_id: 1})
    beat.client.zrem(beat.keys.leases, run_id)

    assert as_committed == confirm()
    assert beat.ledger.outbox(1) == []


def test_a_confirmation_of_an_earlier_sending_leaves_the_next_one_in_the_outbox(redis_url: str) -> None:
    fleet = Fleet(redis_url, Broker(atomic=False), {})
    beat, run_id = fleet.beat, fleet.first
    run = {name: value for name, value in beat.ledger.run(run_id).items() if name != "sent"}
    beat.client.hset(beat.keys.ledger, run_id, json.dumps({**run, "sends": 2}))
    beat.client.zadd(beat.keys.outbox, {run_id: 1})

    beat.ledger.published([a_sending(run_id)])
    after_the_first = beat.ledger.outbox(10)
    beat.ledger.published([a_sending(run_id, sends=2)])

    assert (after_the_first, beat.ledger.outbox(10)) == ([run_id], [])


def test_a_confirmation_that_comes_after_the_claim_changes_no_lease(redis_url: str) -> None:
    fleet = Fleet(redis_url, Broker(atomic=False), {})
    beat, run_id = fleet.beat, fleet.first
    fleet.claim(run_id)
    lease = beat.client.zscore(beat.keys.leases, run_id)

    beat.ledger.published([a_sending(run_id)])

    assert beat.client.zscore(beat.keys.leases, run_id) == lease


def test_a_run_whose_message_the_caller_never_sent_frees_its_entry_after_an_hour(fleet: Fleet) -> None:
    beat = fleet.beat
    fields = {"entry": "other", "task": "proj.etl", "schedule": 0, "slot": fleet.now, "trigger": "manual"}
    beat.controls.record_manual_run("manual-run", fields, now=fleet.now)

    fleet.pass_minutes(58, plugin=True)
    before = beat.client.zcard(beat.keys.active("other"))
    fleet.pass_minutes(4, plugin=True)

    assert (before, beat.client.zcard(beat.keys.active("other"))) == (1, 0)
    assert [event.reason for event in fleet.told(RunUnreported)] == [
        "no message with its run_headers came within an hour"
    ]
    assert fleet.claim("manual-run") is ClaimOutcome.GRANTED  # should its message come after all


def test_a_claim_shows_that_its_queue_drains(fleet: Fleet) -> None:
    fleet.claim(fleet.first, routing_key=QUEUE)

    sent = fleet.beat.ledger.runs_of("etl")[0]["sent"]
    assert fleet.beat.recovery.drained([QUEUE, "other"]) == {QUEUE: sent}


def test_a_damaged_key_of_one_entry_keeps_no_other_run_waiting(redis_url: str, broker: Broker) -> None:
    clock = FakeClock("2026-02-07T09:59:00Z")
    policy = {"window": "6h", "overlap_policy": "all"}
    beat = Beat(redis_url, clock, dict.fromkeys(("a", "b"), (HOURLY, policy)), broker=broker)
    beat.tick()
    clock.advance(minutes=2)
    beat.tick()
    for name in ("a", "b"):
        (run,) = beat.ledger.runs_of(name)
        beat.leases.claim(run["id"], owner="w", task=run["task"], worker="w")
    beat.client.set(beat.keys.chain("a"), "somebody else's")
    beat.client.hset(beat.keys.policies, "a", '{"capacity":1,"max_attempts":-2}')  # its loss is its end

    later = int(time.time() * 1000) + 10 * MINUTE
    beat.recovery.now_ms = later
    for second in range(3):
        beat.engine.services.reaper.reap(later + second * 1000)

    assert [event.entry for event in beat.told(RunResent)] == ["b"]
    assert [event.entry for event in beat.told(EntryFailed)] == ["a"]


# -- a store that was out of reach -----------------------------------------------------------


def test_nothing_that_runs_is_taken_over_within_a_lease_after_the_store_was_away(fleet: Fleet) -> None:
    """Its worker may be alive, and could not renew."""
    beat, run_id = fleet.beat, fleet.first
    fleet.workers(plugin=True)
    fleet.claim(run_id, "a")

    fleet.now += 10 * MINUTE  # the store is away
    fleet.workers(plugin=True)
    fleet.reap()
    by_a_copy = fleet.claim(run_id, "b")
    beat.leases.now_ms = fleet.now
    renewed = beat.leases.renew([(run_id, "a")])

    assert (by_a_copy, renewed) == (ClaimOutcome.HELD, [])
    assert fleet.told(RunResent) == []
    assert fleet.states == ["running", "waiting", "waiting"]


def test_a_worker_that_does_not_renew_within_that_lease_loses_its_run(fleet: Fleet) -> None:
    fleet.workers(plugin=True)
    fleet.claim(fleet.first, "a")

    fleet.now += 10 * MINUTE
    for _ in range(5):
        fleet.now += MINUTE // 3  # the store is back: workers say so every twenty seconds
        fleet.workers(plugin=True)
        fleet.reap()

    assert [event.reason for event in fleet.told(RunResent)] == ["its worker was lost"]


def test_a_clock_that_was_put_back_counts_as_an_outage(fleet: Fleet) -> None:
    fleet.workers(plugin=True)
    fleet.claim(fleet.first, "a")
    fleet.now -= 60 * MINUTE
    fleet.workers(plugin=True)
    fleet.now += MINUTE // 2

    assert fleet.claim(fleet.first, "b") is ClaimOutcome.HELD


def test_a_claim_right_after_an_outage_of_the_store_takes_no_run_from_its_worker(fleet: Fleet) -> None:
    fleet.workers(plugin=True)
    assert fleet.claim(fleet.first, owner="a") is ClaimOutcome.GRANTED

    fleet.now += 60 * MINUTE  # nobody reaches the store; then a copy of the message is delivered first
    at_once = fleet.claim(fleet.first, owner="b")
    for _ in range(4):  # the pulses of other workers
        fleet.now += MINUTE // 3
        fleet.workers(plugin=True)
    later = fleet.claim(fleet.first, owner="b")

    assert (at_once, later) == (ClaimOutcome.HELD, ClaimOutcome.GRANTED)


def test_a_claim_after_a_countdown_does_not_show_that_younger_messages_were_overtaken(fleet: Fleet) -> None:
    sent = fleet.now
    run = {**fleet.beat.ledger.run(fleet.first), "sent": sent + 120 * MINUTE, "countdown": 120 * MINUTE}
    fleet.beat.client.hset(fleet.beat.keys.ledger, fleet.first, json.dumps(run))

    fleet.now += 121 * MINUTE
    fleet.claim(fleet.first, routing_key=QUEUE)

    assert int(fleet.beat.client.hget(fleet.beat.keys.drained, QUEUE)) == sent


def test_an_expired_copy_does_not_end_a_run_whose_latest_message_has_not_expired(fleet: Fleet) -> None:
    expires = fleet.now + 30 * MINUTE
    run = {**fleet.beat.ledger.run(fleet.first), "expires": expires}
    fleet.beat.client.hset(fleet.beat.keys.ledger, fleet.first, json.dumps(run))

    def discard(at: int) -> ReportOutcome:
        fleet.beat.leases.now_ms = at
        report = {"entry": "etl", "owner": "", "state": RunState.REVOKED, "error": "expired"}
        return fleet.beat.leases.finish(fleet.first, **report).outcome

    before, after = discard(expires - 1), discard(expires)

    assert (before, after) == (ReportOutcome.SUPERSEDED, ReportOutcome.RECORDED)
    assert fleet.states[0] == "revoked"


def test_a_run_that_is_claimed_before_its_confirmation_knows_when_its_message_expires(fleet: Fleet) -> None:
    run = {key: value for key, value in fleet.beat.ledger.run(fleet.first).items() if key != "sent"}
    fleet.beat.client.hset(fleet.beat.keys.ledger, fleet.first, json.dumps(run))
    fleet.claim(fleet.first)
    leased = fleet.beat.client.zscore(fleet.beat.keys.leases, fleet.first)

    fleet.beat.ledger.published([a_sending(fleet.first, {"expires_ms": 30 * MINUTE})])

    assert fleet.beat.ledger.run(fleet.first)["expires"] >= fleet.now + 30 * MINUTE
    assert fleet.beat.client.zscore(fleet.beat.keys.leases, fleet.first) == leased


def test_a_run_that_is_retried_before_its_confirmation_knows_when_its_message_expires(redis_url: str) -> None:
    fleet = Fleet(redis_url, Broker(atomic=False), {})
    beat, run_id = fleet.beat, fleet.first
    beat.client.zadd(beat.keys.outbox, {run_id: 1})
    run = {name: value for name, value in beat.ledger.run(run_id).items() if name not in ("sent", "expires")}
    beat.client.hset(beat.keys.ledger, run_id, json.dumps(run))
    fleet.claim(run_id)
    beat.workers.retry(run_id, owner="a", delay_ms=1000)

    beat.ledger.published([a_sending(run_id, {"expires_ms": 30 * MINUTE})])

    assert beat.ledger.run(run_id)["expires"] >= fleet.now + 30 * MINUTE
