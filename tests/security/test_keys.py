"""Keys: no name reaches another entry's, another app's or anybody's key but its own."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from celery_catchup.model import Slot, run_id
from celery_catchup.store import Keys
from celery_catchup.testing import FakeClock
from tests.integration.beats import Beat
from tests.integration.operating import ALL, HOURLY, Project

NINE, TEN, NOON = "2026-02-07T09:05:00Z", "2026-02-07T10:00:00Z", "2026-02-07T12:02:00Z"
HOSTILE = (
    "x'); redis.call('DEL', 'victim')--",
    "a:b",
    "{x}",
    "}{",
    "../../etc/passwd",
    "*",
    "%s%n",
    "%41",
    "A",
    "\N{PILE OF POO}",
    "x" * 200,
    "]]--",
    '"} , {"',
)
POLICY = {"window": "6h", "overlap_policy": "allow"}
kinds = st.sampled_from(["runs_of", "active", "chain", "skips"])
names = st.one_of(st.sampled_from(HOSTILE), st.text(min_size=1, max_size=20))


@given(st.tuples(kinds, names), st.tuples(kinds, names))
def test_no_two_entries_share_a_key(one: tuple[str, str], other: tuple[str, str]) -> None:
    keys = Keys("app")
    made = [getattr(keys, kind)(name) for kind, name in (one, other)]

    assert (made[0] == made[1]) == (one == other)
    assert all(key.startswith("{catchup:app}:") and key.count("{") == 1 for key in made)
    assert not set(made) & {value for value in vars(keys).values() if value != keys.prefix}


@given(names, names, st.integers(0, 10**12), st.integers(0, 10**12))
def test_no_two_runs_share_an_id(entry: str, other: str, slot: int, another: int) -> None:
    made = [run_id("app", name, Slot(at, 0)) for name, at in ((entry, slot), (other, another))]

    assert (made[0] == made[1]) == ((entry, slot) == (other, another))


@pytest.mark.parametrize("name", [name for name in HOSTILE if name != "*"])
def test_a_hostile_name_is_stored_verbatim_and_touches_nothing_else(redis_url: str, name: str) -> None:
    clock = FakeClock(NINE)
    beat = Beat(redis_url, clock, {name: ("0 * * * *", POLICY), "other": ("0 * * * *", POLICY)})
    beat.client.set("victim", "alive")
    beat.tick()
    clock.set(TEN)
    beat.tick()

    assert beat.sent(name) == beat.sent("other") == [TEN]
    assert name.encode() in beat.client.hkeys(beat.keys.decided)
    assert beat.client.get("victim") == b"alive"
    found: Any = beat.client.keys("*")
    assert {key for key in found if not key.startswith(b"{catchup:test}:")} == {b"victim", b"celery"}


def everything(client: redis.Redis, prefix: str) -> dict[bytes, bytes | None]:
    found: Any = client.keys("*")
    return {key: client.dump(key) for key in found if key.decode().startswith(prefix)}  # type: ignore[misc]


def test_two_apps_on_one_server_never_touch_each_other(redis_url: str, desk_clock: FakeClock) -> None:
    projects = {
        name: Project(redis_url, desk_clock, {"etl": HOURLY}, {"etl": ALL}, catchup_namespace=name)
        for name in ("one", "one:two")
    }
    for project in projects.values():
        project.tick()
    desk_clock.set(NOON)
    for project in projects.values():
        project.tick()
    with redis.Redis.from_url(redis_url) as client:
        before = everything(client, Keys("one:two").prefix)
        mine: Any = client.keys("*")
        projects["one"].catchup("watermark", "reset", "--all", "-f")
        projects["one"].catchup("pause", "etl")
        projects["one"].execute("etl")

        assert before
        assert everything(client, Keys("one:two").prefix) == before
        prefixes = {Keys(name).prefix for name in projects}
        ours = [key for key in mine if not key.startswith((b"celery", b"_kombu"))]
        assert {key.decode().rpartition("}:")[0] + "}" for key in ours} == prefixes


def test_nothing_of_ours_expires_by_itself(redis_url: str) -> None:
    clock = FakeClock(NINE)
    beat = Beat(redis_url, clock, {"etl": ("0 * * * *", POLICY)})
    beat.tick()
    clock.set(NOON)
    beat.tick()

    found: Any = beat.client.keys(f"{beat.keys.prefix}*")
    assert len(found) > 10
    assert {int(beat.client.ttl(key)) for key in found} == {-1}  # type: ignore[arg-type]
