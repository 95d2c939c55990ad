"""The leader's lease: renewed beside the ticks, and lost by a tick that hangs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from celery_catchup.store import FencedError, Keys, Leadership, Store
from celery_catchup.store.connection import connect
from celery_catchup.testing import FakeClock

LEASE = 2.0
NAMESPACE = "leases"


class Beside:
    """Calls back when the test says so, as the thread of a real clock does at its intervals."""

    def __init__(self) -> None:
        self.interval, self.action, self.ended = 0.0, lambda: None, False

    def __call__(self, seconds: float, action: Callable[[], None]) -> Callable[[], None]:
        self.interval, self.action = seconds, action
        return self.end

    def end(self) -> None:
        self.ended = True


@pytest.fixture
def store(redis_url: str) -> Iterator[Store]:
    made = Store(connect(redis_url), NAMESPACE)
    yield made
    made.close()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def beside() -> Beside:
    return Beside()


@pytest.fixture
def leader(store: Store, clock: FakeClock, beside: Beside) -> Leadership:
    made = Leadership(store, clock=clock, ttl_ms=int(LEASE * 1000), every=beside)
    assert made.lead(now=1).leads
    return made


@pytest.fixture
def standby(store: Store, clock: FakeClock, leader: Leadership) -> Leadership:
    made = Leadership(store, clock=clock, ttl_ms=int(LEASE * 1000))
    assert not made.lead(now=1).leads
    return made


def pass_time(clock: FakeClock, beside: Beside, seconds: float) -> None:
    """Let time pass with a renewal at each interval."""
    for _ in range(round(seconds / beside.interval)):
        clock.advance(seconds=beside.interval)
        beside.action()


def test_a_tick_that_takes_longer_than_the_lease_keeps_the_lead(
    clock: FakeClock, beside: Beside, leader: Leadership, standby: Leadership
) -> None:
    for _ in range(10):
        pass_time(clock, beside, LEASE / 2)
        assert not standby.lead(now=2).leads
        leader.keep()


def test_without_a_renewal_a_standby_leads_as_soon_as_the_lease_is_over(
    clock: FakeClock, leader: Leadership, standby: Leadership
) -> None:
    assert standby.until_stale() == pytest.approx(LEASE)

    clock.advance(seconds=LEASE - 0.01)
    assert not standby.lead(now=2).leads
    clock.advance(seconds=standby.until_stale())
    assert standby.lead(now=2).leads

    with pytest.raises(FencedError):
        leader.keep()


def test_a_renewal_whose_number_comes_again_after_lost_writes_is_another_one(
    store: Store, clock: FakeClock, leader: Leadership, standby: Leadership
) -> None:
    record = Keys(NAMESPACE).leader
    before = store.client.dump(record)
    leader.lead(now=2)
    standby.lead(now=2)

    store.client.restore(record, 0, before, replace=True)
    clock.advance(seconds=LEASE)  # the standby is suspended meanwhile
    leader.lead(now=3)

    assert not standby.lead(now=3).leads


def test_the_lease_of_a_tick_that_hangs_is_not_renewed_for_ever(
    clock: FakeClock, beside: Beside, leader: Leadership, standby: Leadership
) -> None:
    pass_time(clock, beside, 9)
    assert not standby.lead(now=2).leads

    pass_time(clock, beside, 1.5 + LEASE)
    standby.lead(now=2)
    pass_time(clock, beside, LEASE)

    assert standby.lead(now=2).leads


def test_a_lost_lead_is_noticed_beside_the_ticks_and_is_not_taken_back(
    clock: FakeClock, beside: Beside, leader: Leadership, standby: Leadership
) -> None:
    clock.advance(seconds=LEASE)
    assert standby.lead(now=2).leads

    beside.action()

    with pytest.raises(FencedError):
        leader.fence()
    assert leader.epoch == 0


def test_a_beat_that_has_resigned_does_not_renew(
    store: Store, clock: FakeClock, beside: Beside, leader: Leadership
) -> None:
    leader.resign()
    clock.advance(seconds=beside.interval)
    beside.action()

    assert not store.client.exists(Keys(NAMESPACE).leader) or not store.client.hget(
        Keys(NAMESPACE).leader, "owner"
    )


@pytest.mark.parametrize("first", [True, False], ids=["renewal first", "tick first"])
def test_answers_that_overtake_each_other_do_not_look_like_lost_writes(
    clock: FakeClock, beside: Beside, leader: Leadership, monkeypatch: pytest.MonkeyPatch, first: bool
) -> None:
    """While the answer to one of them is on its way, the other runs on the server and is answered."""
    stock = Store.call

    def overtaken(self: Store, name: str, args: Any, **more: Any) -> Any:
        if name != "lead":
            return stock(self, name, args, **more)
        clock.advance(seconds=LEASE / 4)
        if first:
            beside.action()
        answer = stock(self, name, args, **more)
        if not first:
            beside.action()
        return answer

    monkeypatch.setattr(Store, "call", overtaken)
    for _ in range(4):
        assert not leader.lead(now=3).lost
        leader.keep()


def test_a_server_that_lost_writes_is_noticed_in_spite_of_renewals(
    store: Store, clock: FakeClock, beside: Beside, leader: Leadership
) -> None:
    pass_time(clock, beside, LEASE)

    store.client.hset(Keys(NAMESPACE).leader, "beat", 1)

    assert leader.lead(now=3).lost


def test_the_renewal_ends_with_the_beat(beside: Beside, leader: Leadership) -> None:
    leader.close()

    assert beside.ended
