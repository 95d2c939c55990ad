"""A first deployment, and state that is lost, unreadable or of the future: nothing old runs."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from tests.acceptance.processes import Process, until
from tests.acceptance.sites import Site, at, instant

HOURLY = "0 * * * *"
EVERY_SECOND = {"$every": 1}


def warnings(beat: Process) -> list[str]:
    return [line["detail"] for line in beat.said("State suspect") if line["level"] == "WARNING"]


def away(site: Site, harm: Callable[[Site], None] = lambda site: None) -> Process:
    """A beat that leaves at 09:05, harm to what it left, and the beat that comes at 12:02."""
    site.declare(
        {"hourly": HOURLY, "other": HOURLY, "ticking": EVERY_SECOND},
        catchup_entries={
            "hourly": {"window": "6h", "overlap_policy": "allow"},
            "other": {"window": "6h", "overlap_policy": "allow"},
            "ticking": {"window": "1m", "overlap_policy": "allow"},
        },
    )
    site.set_clock("09:04:50")
    before = site.leader()
    site.until_sent(1)
    before.stop()
    site.redis.delete("celery")
    harm(site)
    site.set_clock("12:02:00")
    return site.leader()


def live(site: Site, entry: str = "ticking") -> list[str]:
    return [message.slot for message in site.messages(entry) if not message.headers["is_catchup"]]


def until_alive(site: Site, entry: str = "ticking") -> None:
    """Wait until the entry has had two live slots under the second beat."""
    late = at("12:02:00")
    until(lambda: len([s for s in live(site, entry) if s >= late]) >= 2, what=f"live slots of {entry}")


# -- the first time ----------------------------------------------------------------------------


def test_a_first_deployment_runs_nothing_old_and_warns_of_nothing(site: Site) -> None:
    site.declare(
        {"hourly": HOURLY, "minutely": "* * * * *", "stock": {"$crontab": {}}},
        catchup_entries={"hourly": "7d", "minutely": {"window": "7d", "overlap_policy": "all"}},
    )
    site.set_clock("12:02:05")

    beat = site.leader()
    site.until_a_tick_later()

    assert site.messages() == []
    assert not [line for line in beat.said() if line["level"] != "INFO"]
    assert "Catch-up" not in beat.text()


def test_a_new_entry_beside_old_ones_has_no_past(site: Site) -> None:
    site.declare({"old": HOURLY}, catchup_entries={"old": {"window": "6h", "overlap_policy": "allow"}})
    site.set_clock("09:05:00")
    before = site.leader()
    site.until_a_tick_later()
    before.stop()

    both = {name: {"window": "6h", "overlap_policy": "allow"} for name in ("old", "new")}
    site.declare({"old": HOURLY, "new": HOURLY}, catchup_entries=both)
    site.set_clock("12:02:00")
    site.leader()
    site.until_sent(3)
    site.until_a_tick_later()

    assert (len(site.slots("old")), site.slots("new")) == (3, [])


# -- the scheduler's watermark -----------------------------------------------------------------


def test_without_harm_the_same_place_is_caught_up(site: Site) -> None:
    beat = away(site)

    until(lambda: len(site.slots("hourly")) == 3, what="the three missed hours")
    assert warnings(beat) == []


def test_a_lost_watermark_replays_nothing_and_is_a_warning(site: Site) -> None:
    beat = away(site, lambda site: site.redis.hdel(site.keys.scheduler, "watermark"))
    until_alive(site)

    assert warnings(beat) == ["the scheduler's watermark is missing; nothing is replayed"]
    assert site.slots("hourly") == site.slots("other") == []


def test_a_watermark_lost_before_any_slot_was_decided_is_a_warning_too(site: Site) -> None:
    site.declare({"hourly": HOURLY}, catchup_entries={"hourly": "6h"})
    site.set_clock("09:04:50")
    before = site.leader()
    site.until_a_tick_later()
    before.stop()
    site.redis.hdel(site.keys.scheduler, "watermark")

    site.set_clock("12:02:00")
    beat = site.leader()

    assert warnings(beat) == ["the scheduler's watermark is missing; nothing is replayed"]


@pytest.mark.parametrize("value", ["garbage", "1e400"])
def test_an_unreadable_watermark_replays_nothing_and_is_shown(site: Site, value: str) -> None:
    beat = away(site, lambda site: site.redis.hset(site.keys.scheduler, "watermark", value))
    until_alive(site)

    assert warnings(beat) == [f"the scheduler's watermark {value!r} is not a time; nothing is replayed"]
    assert site.slots("hourly") == site.slots("other") == []


def test_a_watermark_of_the_future_counts_as_now_and_is_a_warning(site: Site) -> None:
    later = "4102444800000"  # 2100
    beat = away(site, lambda site: site.redis.hset(site.keys.scheduler, "watermark", later))
    until_alive(site)

    assert warnings(beat) == [
        "the scheduler's watermark 2100-01-01T00:00:00Z is in the future; it counts as now"
    ]
    assert site.slots("hourly") == []
    assert (site.watermark() or 0) < instant(at("13:00:00"))


# -- what is known of one entry ----------------------------------------------------------------


def test_an_unreadable_state_of_one_entry_leaves_the_others_alone(site: Site) -> None:
    beat = away(site, lambda site: site.redis.hset(site.keys.decided, "hourly", "nan"))
    until_alive(site)

    assert warnings(beat) == ["the watermark of entry 'hourly' is 'nan', which is not a time"]
    assert site.slots("hourly") == []
    assert len(site.slots("other")) == 3


def test_an_entry_whose_state_was_unreadable_goes_on_with_its_next_slot(site: Site) -> None:
    beat = away(site, lambda site: site.redis.hset(site.keys.decided, "ticking", "garbage"))

    until_alive(site)
    assert len(beat.said("Leading")) == 1


def test_an_entry_decided_far_in_the_future_is_not_silently_dead(site: Site) -> None:
    later = "4102444800000"  # 2100
    beat = away(site, lambda site: site.redis.hset(site.keys.decided, "ticking", later))

    until(lambda: warnings(beat), what="a warning")
    until_alive(site)


def test_an_entry_without_a_policy_whose_state_is_unreadable_starts_anew(site: Site) -> None:
    site.declare({"stock": {"$every": 1}})
    before = site.leader()
    site.until_sent(1)
    before.stop()
    site.redis.hset(site.keys.last_runs, "stock", "garbage")
    site.redis.delete("celery")

    site.leader()

    site.until_sent(2)


# -- keys of another kind ----------------------------------------------------------------------


def test_keys_of_another_kind_are_named_calmly_and_the_beat_lives(site: Site) -> None:
    site.declare(
        {"ticking": EVERY_SECOND}, catchup_entries={"ticking": {"window": "1m", "overlap_policy": "allow"}}
    )
    beat = site.leader()
    site.until_sent(1)
    for times, name in enumerate(("scheduler", "decided", "ledger"), start=1):
        key = getattr(site.keys, name)
        kept: Any = site.redis.dump(key)
        site.redis.set(key, "not ours")
        beat.until_it_says("WRONGTYPE", times=times)
        site.redis.restore(key, 0, kept, replace=True)
        beat.until_it_says("Redis cannot be used: over", times=times)

    slots = [instant(slot) for slot in site.slots("ticking")]
    assert "Traceback" not in beat.text()
    assert [later - slot for slot, later in pairwise(slots)] == [1000] * (len(slots) - 1)
