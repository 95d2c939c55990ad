"""One declaration for many entries: each has its own state, and values may come and go."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery

from celery_catchup.model import to_instant
from celery_catchup.operations.manual_runs import trigger
from celery_catchup.operations.status import list_failing
from celery_catchup.testing import FakeClock, ManualBeat
from tests.integration.operating import ALL, HOURLY, Project
from tests.projects import tenants

ACTIVE, HANG = "tests.projects.tenants:active", "tests.projects.tenants:hang"
LIST = {"tenant": ["eu", "us"]}
SYNC = {**HOURLY, "task": "proj.sync"}


@pytest.fixture(autouse=True)
def _answers() -> Iterator[None]:
    tenants.answer = lambda: ["eu", "us"]
    yield
    tenants.free.set()
    tenants.free.clear()


def project_of(
    url: str, clock: FakeClock, each: Any = None, *, entry: Any = None, **settings: Any
) -> Project:
    schedule = {"sync": {**SYNC, **(entry or {})}, "other": SYNC}
    policies = {"sync": {**ALL, "for_each": LIST if each is None else each}}
    return Project(url, clock, schedule, policies, **settings)


def names(project: Project) -> list[str]:
    return [one["name"] for one in project.json("entries")["entries"]]


def dispatched(project: Project, entry: str) -> list[str]:
    return [slot[11:16] for slot, _ in project.slots(entry)]


def failures(project: Project) -> list[tuple[str, str]]:
    with project.operator() as operator:
        return [(one.entry, one.reason) for one in list_failing(operator)]


# -- what each entry has of its own ------------------------------------------------------------


def test_each_value_is_an_entry_with_its_own_argument_and_identity(
    redis_url: str, desk_clock: FakeClock
) -> None:
    project = project_of(redis_url, desk_clock, entry={"kwargs": {"full": True}})
    project.tick()
    desk_clock.set("2026-02-07T10:00:01Z")
    project.tick()

    runs = {run["entry"]: run for run in project.json("runs")["runs"]}
    with project.operator() as operator:
        kwargs = {name: operator.schedule[name].kwargs for name in ("sync[eu]", "sync[us]")}

    assert names(project) == ["sync[eu]", "sync[us]", "other"]
    assert kwargs == {"sync[eu]": {"full": True, "tenant": "eu"}, "sync[us]": {"full": True, "tenant": "us"}}
    assert {name: run["tenant"] for name, run in runs.items()} == {"sync[eu]": "eu", "sync[us]": "us"}
    assert len({run["runId"] for run in runs.values()}) == 2


def test_one_is_paused_and_caught_up_without_the_other(redis_url: str, desk_clock: FakeClock) -> None:
    project = project_of(redis_url, desk_clock)
    project.tick()
    project.catchup("pause", "sync[eu]")
    desk_clock.set("2026-02-07T12:02:00Z")

    assert [one["dispatched"] for one in project.json("preview", "sync[*]")["previews"]] == [0, 3]
    project.tick()

    assert dispatched(project, "sync[us]") == ["10:00", "11:00", "12:00"]
    assert dispatched(project, "sync[eu]") == []


def test_two_arguments_make_pairs(redis_url: str, desk_clock: FakeClock) -> None:
    project = project_of(redis_url, desk_clock, {"tenant": ["eu", "us"], "plan": ["gold"]})

    assert names(project)[:2] == ["sync[eu,gold]", "sync[us,gold]"]
    assert [one["entry"] for one in project.json("pause", "sync[eu,*]")["entries"]] == ["sync[eu,gold]"]


def test_a_policy_on_the_entry_and_one_of_add_periodic_task_work_alike(
    redis_url: str, desk_clock: FakeClock
) -> None:
    schedule = {"sync": {**SYNC, "catchup": {"window": "1d", "for_each": LIST}}}
    project = Project(redis_url, desk_clock, schedule, {})
    project.app.add_periodic_task(
        3600.0,
        project.app.signature("proj.sync"),
        name="pull",
        catchup={"window": "1d", "forEach": {"tenant": ["eu"]}},
    )
    project.tick()

    assert names(project) == ["sync[eu]", "sync[us]", "pull[eu]"]
    assert project.json("preview", "pull[*]")["previews"][0]["window"] == "1d"


def test_another_policy_can_be_previewed(redis_url: str, desk_clock: FakeClock) -> None:
    project = project_of(redis_url, desk_clock)
    project.tick()
    desk_clock.set("2026-02-07T12:02:00Z")
    plain, other = (
        project.json("preview", "sync[eu]", *more)["previews"][0]["slots"]
        for more in ((), ("--policy", "latest"))
    )

    assert [one["action"] for one in other] == ["skip", "skip", "dispatch"]
    assert other[-1]["runId"] == plain[-1]["runId"]


def test_a_run_is_started_by_the_name_of_one(redis_url: str, desk_clock: FakeClock) -> None:
    project = project_of(redis_url, desk_clock)

    run_id = trigger(project.app, "sync[us]")

    assert project.json("runs", "show", run_id)["run"]["entry"] == "sync[us]"


def test_a_test_sees_the_entries(redis_url: str) -> None:
    app = Celery("proj", broker="memory://", set_as_current=False)
    app.conf.update(
        beat_schedule={"sync": SYNC}, catchup_entries={"sync": {**ALL, "for_each": {"tenant": ACTIVE}}}
    )

    beat = ManualBeat(app, redis_url, at="2026-02-07T09:05:00Z")
    beat.outage(hours=3)

    assert [run.scheduled_time.hour for run in beat.runs("sync[eu]")] == [10, 11, 12]
    beat.close()


# -- mistakes ----------------------------------------------------------------------------------


def test_all_mistakes_are_shown_at_once(redis_url: str, desk_clock: FakeClock) -> None:
    schedule = {"sync": {**SYNC, "kwargs": {"tenant": "x"}}, "pull": SYNC, "pull[eu]": SYNC}
    project = Project(
        redis_url,
        desk_clock,
        schedule,
        {
            "sync": {"window": "1x", "for_each": LIST},
            "pull": {"window": "1d", "for_each": LIST},
            "pull[us]": "1d",
            "missing": {"window": "1d", "for_each": LIST},
        },
    )

    refused = project.catchup("entries", code=2).stderr

    assert "catchup_entries.sync.window: " in refused
    assert "catchup_entries.sync.for_each: the entry has the argument 'tenant' already; remove it" in refused
    assert "catchup_entries.pull.for_each: makes 'pull[eu]', which beat_schedule has, too" in refused
    assert "catchup_entries.missing: no such entry in beat_schedule" in refused


def test_a_policy_for_one_of_them_is_a_mistake(redis_url: str, desk_clock: FakeClock) -> None:
    project = project_of(redis_url, desk_clock)
    project.app.conf.catchup_entries["sync[eu]"] = "1d"

    refused = project.catchup("entries", code=2).stderr

    assert "catchup_entries.sync[eu]: for_each of 'sync' makes this entry; set the policy there" in refused


def test_a_stored_entry_has_no_for_each(redis_url: str, desk_clock: FakeClock) -> None:
    project = Project(redis_url, desk_clock)
    policy = '{"window": "1d", "for_each": {"tenant": ["eu"]}}'

    refused = project.catchup(
        "entries", "add", "x", "--task", "proj.etl", "--every", "1h", "--catchup", policy, code=2
    )

    assert "for_each: works for one declared entry at a time" in refused.stderr


# -- values of a function ----------------------------------------------------------------------


def test_a_new_value_is_a_new_entry_and_a_missing_one_is_removed_until_it_returns(
    redis_url: str, desk_clock: FakeClock
) -> None:
    project = project_of(redis_url, desk_clock, {"tenant": ACTIVE})
    with project.beat() as scheduler:
        scheduler.tick()
        tenants.answer = lambda: ["eu", "asia"]
        desk_clock.advance(minutes=4)
        scheduler.tick()
        before = set(scheduler.schedule)
        desk_clock.advance(minutes=2)
        scheduler.tick()
        after = set(scheduler.schedule)
        desk_clock.advance(hours=3)
        scheduler.tick()
        scheduler.tick()
        tenants.answer = lambda: ["eu", "us"]
        desk_clock.advance(minutes=6)
        scheduler.tick()
        scheduler.tick()

    (skip,) = project.json("runs", "sync[us]", "--state", "skipped")["skipped"]
    assert {"sync[eu]", "sync[us]"} <= before
    assert {"sync[eu]", "sync[asia]"} <= after
    assert "sync[us]" not in after
    assert len(dispatched(project, "sync[asia]")) == len(dispatched(project, "sync[eu]")) == 3
    assert (skip["reason"], skip["count"]) == ("removed", 3)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda: 1 / 0, "tests.projects.tenants:active raised ZeroDivisionError: division by zero"),
        (lambda: ["eu", "eu"], "returned values that cannot be used: 'eu' is there 2 times"),
        (lambda: "eu", "expected a list of texts, got 'eu'"),
        (lambda: [str(one) for one in range(10_001)], "makes 10,001 entries"),
    ],
    ids=["exception", "twice", "text", "too many"],
)
def test_a_function_that_fails_removes_nothing_and_is_shown(
    redis_url: str, desk_clock: FakeClock, answer: Any, says: str
) -> None:
    project = project_of(redis_url, desk_clock, {"tenant": ACTIVE})
    with project.beat() as scheduler:
        scheduler.tick()
        tenants.answer = answer
        desk_clock.advance(minutes=6)
        scheduler.tick()
        desk_clock.set("2026-02-07T10:00:01Z")
        scheduler.tick()
        failing = failures(project)
        tenants.answer = lambda: ["eu"]
        desk_clock.advance(minutes=6)
        scheduler.tick()
        scheduler.tick()
        over = failures(project)

    ((entry, reason),) = failing
    assert entry == "sync"
    assert says in reason
    assert "2 values are kept" in reason
    assert dispatched(project, "sync[us]") == ["10:00"]
    assert over == []


def test_a_start_without_an_answer_goes_on_with_the_last_values(
    redis_url: str, desk_clock: FakeClock
) -> None:
    project = project_of(redis_url, desk_clock, {"tenant": ACTIVE})
    project.tick()
    tenants.answer = lambda: 1 / 0
    desk_clock.set("2026-02-07T12:02:00Z")

    project.tick()

    assert dispatched(project, "sync[us]") == ["10:00", "11:00", "12:00"]
    assert names(project) == ["sync[eu]", "sync[us]", "other"]


def test_a_function_that_hangs_delays_no_other_entry(
    redis_url: str, desk_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_AT_START", "_BY_HAND"):
        monkeypatch.setattr(f"celery_catchup.beat.for_each_values.{name}", 0.05)
    schedule, each = {"sync": SYNC, "other": SYNC}, {"tenant": HANG}
    project = Project(redis_url, desk_clock, schedule, {"sync": {**ALL, "for_each": each}, "other": ALL})
    with project.beat() as scheduler:
        scheduler.tick()
        desk_clock.set("2026-02-07T10:00:01Z")
        scheduler.tick()
        desk_clock.advance(seconds=40)
        scheduler.tick()
        scheduler.tick()
        failing = failures(project)

    assert dispatched(project, "other") == ["10:00"]
    assert "hang has not answered for 40 s; no values are known yet" in failing[0][1]


def test_an_empty_answer_is_believed_and_logged(
    redis_url: str, desk_clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    project = project_of(redis_url, desk_clock, {"tenant": ACTIVE})
    with project.beat() as scheduler:
        scheduler.tick()
        tenants.answer = list
        desk_clock.advance(minutes=6)
        scheduler.tick()

        assert "sync[eu]" not in scheduler.schedule

    assert 'msg="for_each has no values" entry=sync argument=tenant' in caplog.text


def test_other_values_at_a_start_are_no_drift_and_another_schedule_is(
    redis_url: str, desk_clock: FakeClock
) -> None:
    project = project_of(redis_url, desk_clock, {"tenant": ACTIVE}, catchup_on_drift="refuse")
    project.tick()
    tenants.answer = lambda: ["eu", "asia"]
    project.tick()
    accepted = project.json("drift")

    project.app.conf.beat_schedule["sync"] = {**SYNC, "schedule": 1800.0}

    assert accepted["differences"] == []
    assert [one["entry"] for one in project.json("drift", code=3)["differences"]] == ["sync[*]"]


def test_first_sight_of_a_new_value_is_now(redis_url: str, desk_clock: FakeClock) -> None:
    project = project_of(redis_url, desk_clock, {"tenant": ACTIVE})
    project.tick()
    desk_clock.set("2026-02-07T12:02:00Z")
    tenants.answer = lambda: ["eu", "us", "asia"]
    project.tick()

    with project.operator() as operator:
        first_seen = operator.read_stored().first_seen

    assert dispatched(project, "sync[asia]") == []
    assert first_seen["sync[asia]"] == str(to_instant(desk_clock.now()))
