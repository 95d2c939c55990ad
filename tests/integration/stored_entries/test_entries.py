"""Entries at run time through the Python API: what is written, refused and compared."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import redis

from celery_catchup.errors import (
    ConfigurationError,
    EntryChangedError,
    EntryExistsError,
    EntryMissingError,
    StoreError,
)
from celery_catchup.store import EntryRecords, Keys, Store
from celery_catchup.store.entry_records import RecordChange
from celery_catchup.stored_entries.changes import Action
from celery_catchup.stored_entries.entries import Entries, entries
from celery_catchup.testing import FakeClock
from tests.integration.operating import Project

KEYS = Keys("proj")
SYNC = {"name": "sync", "task": "proj.etl", "schedule": "0 * * * *"}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    found = FakeClock("2026-02-07T09:05:30Z")
    monkeypatch.setattr(Entries, "clock", found)
    return found


@pytest.fixture
def project(redis_url: str, clock: FakeClock) -> Project:
    return Project(redis_url, clock)


@pytest.fixture
def stored(project: Project) -> Entries:
    return entries(project.app, actor="alice")


@pytest.fixture
def client(redis_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_url) as found:
        yield found


def state(client: redis.Redis) -> dict[bytes, bytes]:
    """Everything in the store."""
    keys: Any = client.keys("{catchup*")
    return {key: client.dump(key) or b"" for key in keys}


def test_a_created_entry_is_returned_as_it_is_stored(stored: Entries, clock: FakeClock) -> None:
    made = stored.create(
        "sync",
        task="proj.etl",
        schedule={"every": "15m"},
        args=[1],
        kwargs={"day": "x"},
        options={"queue": "slow"},
        catchup={"window": "6h"},
        description="Copies the orders.",
        labels={"team": "billing"},
    )

    assert stored.get("sync") == made
    assert (made.revision, made.created_by, made.changed_at) == (1, "alice", clock.now())
    assert made.fields()["schedule"] == {"every": "15m"}


def test_an_interval_may_be_written_as_celery_takes_it(stored: Entries) -> None:
    assert stored.create("a", task="t", schedule=timedelta(minutes=90)).schedule == {"every": "1h30m"}
    assert stored.create("b", task="t", schedule=30).schedule == {"every": "30s"}


def test_a_name_can_be_taken_once(stored: Entries) -> None:
    stored.create("sync", task="t", schedule="0 * * * *")

    with pytest.raises(EntryExistsError, match="'sync'"):
        stored.create("sync", task="other", schedule="0 * * * *")

    assert stored.get("sync").task == "t"


def test_a_declared_name_is_refused_by_the_settings_of_this_process(stored: Entries) -> None:
    with pytest.raises(EntryExistsError, match="a declared entry has the name 'hourly-etl'"):
        stored.create("hourly-etl", task="t", schedule="0 * * * *")


def test_a_declared_name_is_refused_where_only_beat_knows_it(project: Project, stored: Entries) -> None:
    project.tick()
    project.app.conf.beat_schedule = {}

    with pytest.raises(EntryExistsError, match="a declared entry has the name 'hourly-etl'"):
        stored.create("hourly-etl", task="t", schedule="0 * * * *")


def test_every_mistake_is_reported_at_once_and_nothing_is_written(
    stored: Entries, client: redis.Redis
) -> None:
    before = state(client)
    wrong = [
        {"name": "a", "task": "t", "schedule": "61 * * * *", "catchup": "6x"},
        {"name": "b", "task": "", "schedule": "0 25 * * *", "catchup": "6y", "lables": {}},
        {"name": "c", "task": "t", "schedule": {"every": "10ms"}},
        {"name": "d", "task": "t", "schedule": {"at": "2026-02-07T09:00Z"}},
        {"name": "e", "task": "t", "schedule": "0 * * * *", "kwargs": {"x": object()}},
        {"name": "f", "task": "t", "schedule": "0 * * * *", "options": {"task_id": "1"}},
        {"task": "t", "schedule": "0 * * * *"},
        SYNC,
        SYNC,
    ]

    with pytest.raises(ConfigurationError) as caught:
        stored.apply(wrong)

    places = [one.where for one in caught.value.mistakes]
    assert places == [
        "entries.b.task",
        "entries.b.lables",
        "entries.e.kwargs",
        "entries.f.options",
        "entries[6].name",
        "entries.sync",
        "entries.a.catchup.window",
        "entries.a.schedule",
        "entries.b.catchup.window",
        "entries.b.schedule",
        "entries.c.schedule",
        "entries.d.schedule.at",
    ]
    assert state(client) == before


def test_a_mistake_in_many_entries_alike_is_reported_for_each(stored: Entries) -> None:
    wrong = {"task": "t", "schedule": "61 * * * *", "catchup": {"window": "6h"}}

    with pytest.raises(ConfigurationError) as caught:
        stored.apply([{**wrong, "name": name} for name in ("a", "a.b", "c")])

    assert [one.where for one in caught.value.mistakes] == [
        "entries.a.schedule",
        "entries.a.b.schedule",
        "entries.c.schedule",
    ]


def test_an_update_changes_some_fields_and_keeps_the_others(stored: Entries, clock: FakeClock) -> None:
    made = stored.create("sync", task="t", schedule="0 * * * *", args=[1], labels={"a": "b"})

    clock.advance(minutes=1)
    changed = stored.update("sync", schedule="30 * * * *")

    assert (changed.schedule, changed.args, changed.labels) == ("30 * * * *", [1], {"a": "b"})
    assert (changed.created_at, changed.changed_at) == (made.created_at, clock.now())
    assert changed.revision > made.revision


def test_of_two_writers_with_the_same_revision_one_wins_and_the_other_is_told(stored: Entries) -> None:
    revision = stored.create("sync", task="t", schedule="0 * * * *").revision

    stored.update("sync", revision=revision, args=[1])
    with pytest.raises(EntryChangedError, match=f"expected {revision}"):
        stored.update("sync", revision=revision, args=[2])
    with pytest.raises(EntryChangedError):
        stored.delete("sync", revision=revision)

    assert stored.get("sync").args == [1]


def test_an_update_without_a_revision_is_repeated_when_another_comes_first(
    stored: Entries, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored.create("sync", task="t", schedule="0 * * * *")
    stock, raced = EntryRecords.write, list[int]()

    def write(self: EntryRecords, changes: Any, **given: Any) -> int:
        if not raced:
            raced.append(1)
            stored.update("sync", args=[1])
        return stock(self, changes, **given)

    monkeypatch.setattr(EntryRecords, "write", write)
    found = stored.update("sync", kwargs={"a": 1})

    assert (found.args, found.kwargs) == ([1], {"a": 1})


def test_an_update_that_changes_nothing_writes_nothing(stored: Entries, client: redis.Redis) -> None:
    stored.create("sync", task="t", schedule="0 * * * *")
    before = state(client)

    stored.update("sync", task="t")

    assert state(client) == before


def test_a_deleted_entry_is_gone_and_its_name_is_free(stored: Entries) -> None:
    first = stored.create("sync", task="t", schedule="0 * * * *")

    stored.delete("sync")

    with pytest.raises(EntryMissingError):
        stored.get("sync")
    with pytest.raises(EntryMissingError):
        stored.delete("sync")
    assert stored.create("sync", task="t", schedule="0 * * * *").revision > first.revision


def test_entries_are_listed_by_prefix_label_and_task(stored: Entries) -> None:
    stored.apply(
        [
            {**SYNC, "name": "eu-sync", "labels": {"zone": "eu", "kind": "sync"}},
            {**SYNC, "name": "us-sync", "labels": {"zone": "us", "kind": "sync"}},
            {**SYNC, "name": "eu-mail", "labels": {"zone": "eu"}, "task": "proj.mail"},
        ]
    )

    def names(**by: Any) -> list[str]:
        return [one.name for one in stored.list(**by)]

    assert names() == ["eu-mail", "eu-sync", "us-sync"]
    assert names(prefix="eu-") == ["eu-mail", "eu-sync"]
    assert names(labels={"kind": "sync", "zone": "eu"}) == ["eu-sync"]
    assert names(task="proj.mail") == ["eu-mail"]


def test_apply_creates_updates_and_leaves_alone_and_is_idempotent(stored: Entries) -> None:
    stored.create("old", task="t", schedule="0 * * * *")
    stored.create("sync", task="t", schedule="0 * * * *")

    done = stored.apply([SYNC, {**SYNC, "name": "new"}])
    again = stored.apply([SYNC, {**SYNC, "name": "new"}])

    assert [(one.entry, one.action) for one in done.changes] == [
        ("sync", Action.UPDATED),
        ("new", Action.CREATED),
    ]
    assert [(one.field, one.was, one.now) for one in done.changes[0].fields] == [("task", "t", "proj.etl")]
    assert (again.changes, again.unchanged) == ((), 2)
    assert [one.name for one in stored.list()] == ["new", "old", "sync"]


def test_apply_prunes_what_its_labels_cover(stored: Entries) -> None:
    ours = {"managed-by": "ci"}
    stored.create("mine", task="t", schedule="0 * * * *")
    stored.apply([{**SYNC, "labels": ours}, {**SYNC, "name": "gone", "labels": ours}])

    planned = stored.apply([{**SYNC, "labels": ours}], prune=ours, dry_run=True)
    done = stored.apply([{**SYNC, "labels": ours}], prune=ours)

    assert planned.changes == done.changes
    assert [(one.entry, one.action) for one in done.changes] == [("gone", Action.DELETED)]
    assert [one.name for one in stored.list()] == ["mine", "sync"]
    with pytest.raises(ConfigurationError, match="at least one label"):
        stored.apply([], prune={})


def test_export_gives_what_apply_takes(stored: Entries) -> None:
    stored.create("sync", task="t", schedule="0 * * * *", labels={"a": "b"}, enabled=False)

    found = stored.export()

    assert found == [
        {"name": "sync", "task": "t", "schedule": "0 * * * *", "labels": {"a": "b"}, "enabled": False}
    ]
    assert stored.apply(found).changes == ()


def many(number: int, **fields: Any) -> list[dict[str, Any]]:
    return [{**SYNC, "name": f"sync-{i}", **fields} for i in range(number)]


def test_a_large_set_is_applied_in_one_step(stored: Entries, client: redis.Redis) -> None:
    done = stored.apply(many(1200))

    assert len(done.changes) == 1200
    assert len({one.revision for one in stored.list()}) == 1
    assert not client.exists(KEYS.staged)


def test_a_large_set_with_a_conflict_changes_nothing(
    project: Project, stored: Entries, client: redis.Redis
) -> None:
    project.tick()
    project.app.conf.beat_schedule = {}
    before = state(client)

    with pytest.raises(EntryExistsError, match="hourly-etl"):
        stored.apply([*many(1200), {**SYNC, "name": "hourly-etl"}])

    after = state(client)
    after.pop(KEYS.staged.encode())
    assert after == before


def test_after_a_crash_in_the_middle_of_apply_nothing_is_changed_and_the_next_call_tidies_up(
    stored: Entries, client: redis.Redis, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    stock, calls = Store.call, list[str]()

    class KilledError(BaseException):
        pass

    def call(self: Store, name: str, *args: Any, **more: Any) -> Any:
        calls.append(name)
        if name == "write_entries":
            raise KilledError
        return stock(self, name, *args, **more)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "call", call)
        with pytest.raises(KilledError):
            stored.apply(many(1200))

    assert stored.list() == []
    assert client.zcard(KEYS.staged) == 3
    clock.advance(minutes=11)
    assert len(stored.apply(many(1200)).changes) == 1200
    assert not client.exists(KEYS.staged)


def test_more_than_ten_thousand_entries_are_refused(stored: Entries) -> None:
    with pytest.raises(ConfigurationError, match="at most 10000"):
        stored.apply(many(10_001))


def test_texts_of_hostile_users_stay_text(stored: Entries) -> None:
    nasty = "{x} */\\' \"; return redis.call('FLUSHALL') <script> @catchup:run_id@"

    made = stored.create(
        nasty, task=nasty, schedule="0 * * * *", args=[nasty], labels={nasty: nasty}, description=nasty
    )

    assert stored.get(nasty) == made
    assert stored.apply([{**one} for one in stored.export()]).changes == ()
    with pytest.raises(ConfigurationError, match="unprintable"):
        stored.create("a\x1b[31m", task="t", schedule="0 * * * *")


def test_a_web_process_does_not_import_celerys_beat() -> None:
    code = (
        "import sys, celery_catchup; from celery import Celery; "
        "celery_catchup.entries(Celery('x', broker='redis://localhost')); "
        "assert 'celery.beat' not in sys.modules"
    )

    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_record_that_changes_while_it_is_read_cannot_be_overwritten(
    stored: Entries, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The revision is read before the text, so that a change in between is noticed."""
    stored.create("sync", task="t", schedule="0 * * * *")
    client = stored._records._client
    stock, raced = type(client).hscan_iter, list[int]()

    def scan(self: Any, *args: Any, **more: Any) -> Any:
        if not raced:
            raced.append(1)
            stored.update("sync", args=[1])
        return stock(self, *args, **more)

    monkeypatch.setattr(type(client), "hscan_iter", scan)
    read = stored.list()[0]

    assert read.args == [1]
    with pytest.raises(EntryChangedError):
        stored.update("sync", revision=read.revision, args=[2])


@pytest.mark.parametrize(
    "text", ["{", "[]", "[" * 100_000, '{"task":"t","schedule":"x","args":5}', '{"created_at":1e300}']
)
def test_a_damaged_record_hides_no_other(stored: Entries, text: str) -> None:
    stored.create("good", task="t", schedule="0 * * * *")
    stored._records.write([RecordChange("bad", 0, text)], change=None, now=0)

    assert [one.name for one in stored.list()] == ["good"]
    with pytest.raises(StoreError, match="'bad'"):
        stored.get("bad")
