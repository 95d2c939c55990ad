"""The app ``celery_catchup.django``: policies of rows, facts and actions in the admin, on both databases."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from typing import Any

import pytest
from celery import _state
from django.core.management import call_command
from django.test import Client

from celery_catchup.testing import FakeClock
from tests.integration.beat.test_django_source import dispatched, hourly
from tests.integration.django_projects import DjangoProject
from tests.integration.operating import Project

ROWS = "/admin/django_celery_beat/periodictask/"


@pytest.fixture(params=["sqlite", "postgresql"])
def rows(
    request: pytest.FixtureRequest, django_project: DjangoProject, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Any]:
    """The table of periodic tasks, empty; the source looks at it in every tick."""
    from django_celery_beat.models import PeriodicTask

    from celery_catchup.beat import django_source

    monkeypatch.setattr(django_source, "_EVERY", 0.0)
    with django_project.on(request.param, use_tz=True):
        PeriodicTask.objects.all().delete()
        yield PeriodicTask.objects


@pytest.fixture
def project(redis_url: str, desk_clock: FakeClock, rows: Any, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project whose app is the one of the Django process."""
    found = Project(redis_url, desk_clock, {}, {}, catchup_source="django")
    found.app.conf.beat_schedule = {}
    serve_by_django(found, monkeypatch)
    return found


def serve_by_django(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the app the one of every thread, as Celery's support of Django does."""
    monkeypatch.setattr(_state, "default_app", project.app)
    monkeypatch.setattr(_state._tls, "current_app", project.app)


def signed_in(*permissions: str, superuser: bool = False) -> Client:
    from django.contrib.auth.models import Permission, User

    User.objects.filter(username="ada").delete()
    user = User.objects.create(username="ada", is_staff=True, is_superuser=superuser)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def client(rows: Any) -> Client:
    return signed_in(superuser=True)


def page_of(row: Any) -> str:
    return f"{ROWS}{row.pk}/change/"


def posted(client: Client, row: Any, **policy: str) -> Any:
    """Send the form of a row as the browser does, with these fields of its policy."""
    context = client.get(page_of(row)).context_data
    data = {name: "" if value is None else value for name, value in context["adminform"].form.initial.items()}
    data["start_time_0"] = data["start_time_1"] = data["expires_0"] = data["expires_1"] = ""
    (formset,) = (one.formset for one in context["inline_admin_formsets"])
    for form in (formset.management_form, *formset.forms):
        initial = {name: form.initial.get(name) for name in form.fields}
        data |= {form.add_prefix(name): "" if value is None else value for name, value in initial.items()}
        data |= {form.add_prefix(name): value for name, value in policy.items() if name in form.fields}
    if formset.forms and (key := formset.forms[0].instance.pk):
        data[formset.forms[0].add_prefix("id")] = key
    if "DELETE" not in policy:
        data = {name: value for name, value in data.items() if not name.endswith("-DELETE")}
    return client.post(page_of(row), data)


def act(client: Client, name: str, *given: Any, **more: str) -> Any:
    """Choose an action in the list of rows."""
    data = {"action": name, "_selected_action": [row.pk for row in given], **more}
    return client.post(ROWS, data, follow=True)


def test_a_policy_is_set_in_the_admin_and_used_from_the_next_tick_on(
    project: Project, rows: Any, client: Client, desk_clock: FakeClock
) -> None:
    row = hourly(rows)
    with project.beat() as scheduler:
        scheduler.tick()
        answer = posted(client, row, window="6h", overlap_policy="all", max_active_runs="2")
        assert answer.status_code == 302, answer.context_data["errors"]
        scheduler.tick()
        desk_clock.set("2026-02-07T12:02:00Z")
        for _ in range(3):
            scheduler.tick()

    row.refresh_from_db()
    assert row.catchup_policy.policy == {"window": "6h", "overlap_policy": "all", "max_active_runs": 2}
    assert dispatched(project) == ["10:00", "11:00", "12:00"]
    (entry,) = project.json("entries", "hourly-etl")["entries"]
    assert (entry["catchup"], entry["window"], entry["overlapPolicy"]) == ("all", "6h", "all")

    assert posted(client, row, DELETE="on").status_code == 302
    assert project.json("entries", "hourly-etl")["entries"][0]["catchup"] is None


def test_mistakes_are_beside_their_fields_and_nothing_is_saved(
    project: Project, rows: Any, client: Client
) -> None:
    row = hourly(rows)

    answer = posted(client, row, window="6x", max_runs="many", exclude='["calendar:none"]', keep="newest")

    assert answer.status_code == 200
    (formset,) = (one.formset for one in answer.context_data["inline_admin_formsets"])
    assert set(formset.errors[0]) == {"window", "max_runs"}
    assert "unknown unit" in formset.errors[0]["window"][0]
    assert "unknown unit" in answer.content.decode()
    again = posted(client, row, window="6h", exclude='["calendar:none"]')
    assert "unknown calendar" in str(again.context_data["inline_admin_formsets"][0].formset.errors)
    row.refresh_from_db()
    assert not hasattr(row, "catchup_policy")


def test_a_row_that_cannot_have_a_policy_is_told_in_the_form(
    project: Project, rows: Any, client: Client
) -> None:
    answer = posted(client, hourly(rows, one_off=True), window="6h")

    assert "a one-off row runs once" in answer.content.decode()


def test_a_policy_of_the_settings_wins_and_the_page_says_so(
    project: Project, rows: Any, client: Client
) -> None:
    row = hourly(rows)
    posted(client, row, window="6h")
    project.app.conf.catchup_entries = {"hourly-etl": {"window": "1d"}}

    (entry,) = project.json("entries", "hourly-etl")["entries"]

    assert entry["window"] == "1d"
    text = client.get(page_of(row)).content.decode()
    assert "CELERY_CATCHUP_ENTRIES names this row, and wins over the policy on this page." in text


def test_a_wrong_policy_in_the_table_fails_its_own_row_only(
    project: Project, rows: Any, desk_clock: FakeClock
) -> None:
    from celery_catchup.django.models import CatchupPolicy

    CatchupPolicy.objects.create(periodic_task=hourly(rows, "wrong"), policy={"windw": "6h"})
    CatchupPolicy.objects.create(periodic_task=hourly(rows), policy={"window": "6h", "overlap_policy": "all"})
    project.tick()
    desk_clock.set("2026-02-07T11:02:00Z")
    project.tick()

    assert dispatched(project) == ["10:00", "11:00"]
    failing = project.json("status")["failing"]
    assert [one["entry"] for one in failing] == ["wrong"]
    assert "its catch-up policy: windw: unknown field; did you mean 'window'?" in failing[0]["reason"]


def test_the_page_of_a_row_shows_watermark_last_and_next_slots(
    project: Project, rows: Any, client: Client, desk_clock: FakeClock
) -> None:
    row = hourly(rows)
    posted(client, row, window="6h", select="latest")
    project.tick()
    desk_clock.set("2026-02-07T12:02:00Z")
    project.tick()
    project.execute("hourly-etl")

    text = " ".join(client.get(page_of(row)).content.decode().split())

    assert "Policy: latest, window 6h, overlap skip" in text
    assert "Next slots: 2026-02-07 13:00:00 UTC" in text
    assert "<td>2026-02-07 12:00:00 UTC</td><td>succeeded</td><td>Catch-up</td>" in text
    assert "<td>2026-02-07 11:00:00 UTC and 1 before it</td><td>skipped</td><td>superseded</td>" in text
    assert "Watermark: Feb. 7, 2026" in text


@pytest.mark.parametrize("url", ["redis://127.0.0.1:1/0", "redis://10.255.255.1:6379/0"])
def test_the_page_opens_soon_when_the_store_is_away(
    project: Project, rows: Any, client: Client, url: str
) -> None:
    row = hourly(rows)
    project.app.conf.catchup_redis_url = url
    begun = time.monotonic()

    page = client.get(page_of(row))
    listed = act(client, "pause_entries", row)

    assert (page.status_code, listed.status_code) == (200, 200)
    assert "cannot be used" in page.content.decode()
    assert "cannot be used" in listed.content.decode()
    assert time.monotonic() - begun < 8


def test_entries_are_paused_and_resumed_by_the_user(project: Project, rows: Any, client: Client) -> None:
    row, plain = hourly(rows), hourly(rows, "plain")
    posted(client, row, window="6h")
    project.tick()

    first = act(client, "pause_entries", row, plain).content.decode()
    assert "Paused: hourly-etl." in first
    assert "has no catch-up policy; give it one on its page" in first
    assert list(project.json("status")["paused"]) == ["hourly-etl"]
    assert "<strong>Paused</strong> since" in client.get(page_of(row)).content.decode()
    assert "Not changed: hourly-etl." in act(client, "pause_entries", row).content.decode()
    assert "Resumed: hourly-etl." in act(client, "resume_entries", row).content.decode()

    assert not project.json("status")["paused"]
    records = project.json("audit")["records"]
    assert {(one["action"], one["actor"], one["origin"]) for one in records} == {
        ("entries edit", "ada", "django"),
        ("pause", "ada", "django"),
        ("resume", "ada", "django"),
    }


def test_a_catch_up_is_previewed(project: Project, rows: Any, client: Client, desk_clock: FakeClock) -> None:
    row = hourly(rows)
    posted(client, row, window="6h", select="latest")
    project.tick()
    desk_clock.set("2026-02-07T12:02:00Z")

    text = act(client, "preview_entries", row).content.decode()

    assert "1 run would be dispatched, 2 skipped." in text
    assert "2026-02-07 12:00:00 UTC" in text


def test_a_range_is_previewed_and_backfilled(project: Project, rows: Any, client: Client) -> None:
    row = hourly(rows)
    posted(client, row, window="6h", overlap_policy="all")
    project.tick()
    given = {"start": "2026-02-07T00:00Z", "end": "2026-02-07T03:00Z", "reprocess": "none"}

    asked = act(client, "backfill_entries", row).content.decode()
    assert 'name="start"' in asked
    assert (
        "expected a time"
        in act(client, "backfill_entries", row, **given | {"start": "soon"}).content.decode()
    )
    looked = act(client, "backfill_entries", row, **given, preview="Preview").content.decode()
    assert "4 runs would be dispatched." in looked
    assert not project.json("backfill", "list")["backfills"]
    made = act(client, "backfill_entries", row, **given, create="Create backfill").content.decode()

    assert "Created 1 backfill of 4 slots" in made
    (backfill,) = project.json("backfill", "list")["backfills"]
    assert (backfill["entry"], backfill["requestedBy"]) == ("hourly-etl", "ada in Django")


def test_changes_of_rows_and_policies_leave_a_record_with_the_user(
    project: Project, rows: Any, client: Client
) -> None:
    row = hourly(rows)
    posted(client, row, window="6h")
    posted(client, row, window="12h")
    posted(client, row, window="12h")  # nothing is changed
    posted(client, row, DELETE="on")
    act(client, "disable_tasks", row)
    client.post(f"{ROWS}{row.pk}/delete/", {"post": "yes"})

    found = project.json("audit")["records"]
    shown = [(one["action"], one["parameters"]) for one in reversed(found)]
    policy = {"changed": ["catch-up policy"]}
    assert shown == [
        ("entries edit", {"catchup": {"window": "6h"}, **policy}),
        ("entries edit", {"catchup": {"window": "12h"}, **policy}),
        ("entries edit", policy),
        ("entries edit", {"switch": "disable"}),
        ("entries delete", {}),
    ]
    assert {(one["actor"], one["origin"], *one["entries"]) for one in found} == {
        ("ada", "django", "hourly-etl")
    }


def test_a_change_without_a_store_is_made_and_the_user_sees_that_it_is_not_recorded(
    project: Project, rows: Any, client: Client
) -> None:
    row = hourly(rows)
    project.app.conf.catchup_redis_url = "redis://127.0.0.1:1/0"

    page = act(client, "disable_tasks", row).content.decode()

    assert not rows.get().enabled
    assert "not in the audit trail of celery_catchup" in page


def test_a_user_who_may_only_look_changes_nothing(project: Project, rows: Any, client: Client) -> None:
    row = hourly(rows)
    posted(client, row, window="6h")
    project.tick()
    reader = signed_in("view_periodictask")

    page = reader.get(page_of(row)).content.decode()
    listed = reader.get(ROWS).content.decode()
    act(reader, "pause_entries", row)

    assert "6h" in page
    assert 'name="catchup_policy-0-window"' not in page
    assert 'value="preview_entries"' in listed
    assert 'value="pause_entries"' not in listed
    assert not project.json("status")["paused"]
    assert reader.post(page_of(row), {}).status_code == 403


def test_a_script_in_a_name_stays_text(project: Project, rows: Any, client: Client) -> None:
    row = hourly(rows, "<script>alert(1)</script>")
    posted(client, row, window="6h")
    project.tick()

    texts = [client.get(page_of(row)), act(client, "preview_entries", row), act(client, "pause_entries", row)]

    assert all("<script>alert" not in one.content.decode() for one in texts)


def test_no_migration_is_missing(django_project: DjangoProject) -> None:
    said = io.StringIO()

    call_command("makemigrations", "celery_catchup", check=True, dry_run=True, stdout=said)

    assert "No changes detected" in said.getvalue()
