"""The pages of the tab in a real Flower, also empty ones and messages."""

from __future__ import annotations

import re
import threading
from urllib.parse import quote

import pytest
from celery.schedules import crontab

from celery_catchup.flower import operators
from celery_catchup.flower.pages import dead_letters
from celery_catchup.model import RunState
from celery_catchup.operations import entries
from celery_catchup.store import listing
from celery_catchup.testing import FakeClock
from tests.integration.flowers import SIGNED, Site, flower
from tests.integration.operating import ALL, HOURLY, Project

PAGES = (
    "/catchup",
    "/catchup/",
    "/catchup/runs",
    "/catchup/entry?entry=hourly-etl",
    "/catchup/dead",
    "/catchup/backfills",
    "/catchup/whatif?entry=hourly-etl",
)
EVIL = "<script>alert('\"&')</script>"


@pytest.fixture
def project(redis_url: str, desk_clock: FakeClock) -> Project:
    """The slot at 09:00 ran; then beat was down until 12:30, and caught up."""
    project = Project(redis_url, desk_clock)
    project.tick()
    desk_clock.advance(hours=3, minutes=25)
    project.tick()
    return project


def visible_text(page: str) -> str:
    """Return the text of a page without its markup."""
    page = re.sub(r'<span class="cu-year">([^<]*)</span>', r"\1", page)  # no gap before the month
    return " ".join(re.sub(r"<[^>]*>", " ", page).split())


@pytest.mark.parametrize("path", PAGES)
def test_every_page_has_all_four_tabs(project: Project, path: str) -> None:
    with flower(project.app) as site:
        answer = site.ask(path)

    assert answer.status == 200
    assert [visible_text(tab) for tab in re.findall(r"<li><a href.*?</li>", answer.text)[:4]] == [
        "Schedules",
        "Runs",
        "Dead letters",
        "Backfills",
    ]


def test_a_catch_up_has_a_note_for_an_hour(project: Project, desk_clock: FakeClock) -> None:
    sentence = "catch-up runs were dispatched for missed schedules between 10:00 and 12:00 UTC."
    with flower(project.app) as site:
        with_note = visible_text(site.ask("/catchup").text)
        desk_clock.advance(minutes=61)
        without_note = visible_text(site.ask("/catchup").text)

    assert f"3 {sentence} Show them" in with_note
    assert sentence not in without_note


def test_the_page_of_an_entry_has_only_its_own_note(redis_url: str, desk_clock: FakeClock) -> None:
    schedule = {"hourly-etl": HOURLY, "idle": {"task": "proj.etl", "schedule": crontab(minute=0, hour=3)}}
    project = Project(redis_url, desk_clock, schedule, {"hourly-etl": ALL, "idle": ALL})
    project.tick()
    desk_clock.advance(hours=2)
    project.tick()

    with flower(project.app) as site:
        own = visible_text(site.ask("/catchup/entry?entry=hourly-etl").text)
        other = visible_text(site.ask("/catchup/entry?entry=idle").text)

    assert "2 catch-up runs were dispatched for missed schedules between 10:00 and 11:00 UTC." in own
    assert "were dispatched" not in other


def test_the_banner_leads_to_the_runs_that_it_counts(project: Project) -> None:
    with flower(project.app) as site:
        (path,) = re.findall(r'href="([^"]+)">Show them', site.ask("/catchup").text)
        found = site.ask(path.replace("&amp;", "&")).text

    assert found.count('data-label="Run ID"') == 3
    assert found.count("cu-t-catchup") == 3


def test_a_run_shows_its_trigger_its_slot_and_its_start_side_by_side(project: Project) -> None:
    project.execute("hourly-etl")

    with flower(project.app) as site:
        text = visible_text(site.ask("/catchup/runs?state=succeeded").text)

    assert "Catch-up 2026-02-07 10:00 2026-02-07 12:30:00 2h 30m" in text


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("", 4),
        ("triggerType=catchup", 3),
        ("triggerType=scheduler", 0),
        ("state=waiting&state=queued", 3),
        ("state=succeeded", 1),
        ("entry=hourly-etl&since=2026-02-07T11:00Z", 2),
        ("until=2026-02-07T10:30Z", 2),
    ],
)
def test_filters_have_the_names_of_the_api(
    redis_url: str, desk_clock: FakeClock, query: str, count: int
) -> None:
    project = Project(redis_url, desk_clock)
    project.tick()
    project.catchup("run", "hourly-etl")
    project.execute("hourly-etl")
    desk_clock.advance(hours=3, minutes=25)
    project.tick()

    with flower(project.app) as site:
        page = site.ask(f"/catchup/runs?{query}").text

    assert page.count('data-label="Run ID"') == count


def test_runs_that_do_not_fit_on_a_page_follow_on_the_next(project: Project, desk_clock: FakeClock) -> None:
    policies = {"minutely": {"window": "6h", "overlap_policy": "allow"}}
    schedule = {"minutely": {"task": "proj.etl", "schedule": crontab()}}
    many = Project(project.app.conf.broker_url, desk_clock, schedule, policies)
    many.tick()
    desk_clock.advance(minutes=70)
    many.tick()

    with flower(many.app) as site:
        first = site.ask("/catchup/runs?entry=minutely").text
        (older,) = re.findall(r'href="([^"]+)" rel="next"', first)
        second = site.ask(older.replace("&amp;", "&")).text

    ids = re.findall(r'<tr data-key="([^"]+)"', first) + re.findall(r'<tr data-key="([^"]+)"', second)
    assert len(ids) == len(set(ids)) == 70


def test_skipped_and_missed_slots_are_listed_with_their_reasons(
    redis_url: str, desk_clock: FakeClock
) -> None:
    schedule = {"latest": HOURLY, "off": HOURLY}
    policies = {"latest": {"window": "6h", "select": "latest"}, "off": False}
    project = Project(redis_url, desk_clock, schedule, policies)
    project.tick()
    desk_clock.advance(hours=3)
    project.tick()

    with flower(project.app) as site:
        skipped = visible_text(site.ask("/catchup/runs?state=skipped").text)
        missed = visible_text(site.ask("/catchup/runs?state=missed").text)

    assert "Skipped (superseded) 2 slots" in skipped
    assert "Missed (catchup_off)" not in skipped
    assert "Missed (catchup_off) 3 slots" in missed


def test_the_page_of_an_entry_previews_a_restart(project: Project, desk_clock: FakeClock) -> None:
    desk_clock.advance(hours=2)

    with flower(project.app) as site:
        text = visible_text(site.ask("/catchup/entry?entry=hourly-etl").text)

    assert "2026-02-07 13:00Z dispatch 2026-02-07 14:00Z dispatch 2 runs would be dispatched." in text
    assert "catchup preview hourly-etl" in text
    assert "Policy all, window 6h Overlap all" in text


def test_recorded_outages_are_played_again_under_another_policy(project: Project) -> None:
    with flower(project.app) as site:
        entry = site.ask("/catchup/entry?entry=hourly-etl").text
        same = visible_text(site.ask("/catchup/whatif?entry=hourly-etl").text)
        other = visible_text(site.ask("/catchup/whatif?entry=hourly-etl&policy=latest&window=6h").text)
        wrong = site.ask("/catchup/whatif?entry=hourly-etl&window=6")

    assert 'action="/catchup/whatif" data-result="cu-whatif"' in entry
    assert "1 outage: 3 runs instead of 3" in same
    assert "1 outage: 1 run instead of 3" in other
    assert "catchup whatif hourly-etl --policy latest --window 6h" in other
    assert (wrong.status, "window: " in wrong.text) == (200, True)


def test_one_heavy_page_too_many_is_refused(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operators, "_heavy_places", threading.BoundedSemaphore(1))
    operators._heavy_places.acquire()

    with flower(project.app) as site:
        refused, light = site.ask("/catchup/whatif?entry=hourly-etl"), site.ask("/catchup")

    assert (refused.status, light.status) == (429, 200)
    assert "try again in a few seconds" in refused.text


def test_a_dead_letter_shows_category_error_and_traceback(project: Project) -> None:
    letter = {"category": "transient", "type": "OSError", "traceback": "Traceback: the wire was cut"}
    (run_id, *_) = project.execute("hourly-etl", state=RunState.FAILED, error="OSError: cut", letter=letter)

    with flower(project.app) as site:
        listed = visible_text(site.ask("/catchup/dead").text)
        of_another = visible_text(site.ask("/catchup/dead?category=permanent").text)
        page = visible_text(site.ask(f"/catchup/run/{run_id[:8]}").text)

    assert "Dead letters (1)" in listed
    assert "transient OSError: cut" in listed
    assert "No such dead letters." in of_another
    assert "Traceback: the wire was cut" in page


@pytest.mark.parametrize(("total", "words"), [(10, "3 of 10"), (None, "Progress 3")])
def test_the_progress_that_a_task_reports_is_on_the_page_of_its_run(
    project: Project, total: int | None, words: str
) -> None:
    with project.running("hourly-etl") as run:
        run.progress(3, total)

    with flower(project.app) as site:
        page = site.ask(f"/catchup/run/{run.run_id}").text

    assert words in visible_text(page)
    assert ('<progress class="cu-bar" max="10" value="3"' in page) is (total is not None)


def test_the_page_of_a_run_has_its_task_its_log_its_outputs_and_where_the_time_went(
    redis_url: str, desk_clock: FakeClock
) -> None:
    log_url = "https://logs.example.com/?q={task_id}&entry={entry}"
    project = Project(redis_url, desk_clock, catchup_log_url=log_url)
    project.tick()
    desk_clock.advance(hours=1)
    project.tick()
    with project.running("hourly-etl") as run:
        run.output("report", "https://reports.example.com/1?a=b&c=d")
        run.output("table", "javascript:alert(1)")
        run.checkpoint("page", 7)
    desk_clock.advance(minutes=2)

    with flower(project.app) as site:
        page = site.ask(f"/catchup/run/{run.run_id}").text

    text = visible_text(page)
    assert f'href="/task/{run.run_id}"' in page
    assert "Flower does not remember it any more" in text
    assert f'href="https://logs.example.com/?q={run.run_id}&amp;entry=hourly-etl"' in page
    assert '<a href="https://reports.example.com/1?a=b&amp;c=d" rel="noreferrer noopener"' in page
    assert 'href="javascript' not in page
    assert "Checkpoints page 7" in text
    assert "waited 5m 00s · in the queue 0.0 s · ran 2m 00s" in text
    assert "Elapsed 2m 00s" in text


def test_a_name_an_argument_and_an_error_stay_text(redis_url: str, desk_clock: FakeClock) -> None:
    schedule = {EVIL: {"task": EVIL, "schedule": crontab(minute=0), "kwargs": {EVIL: EVIL}}}
    project = Project(redis_url, desk_clock, schedule, {EVIL: ALL})
    project.tick()
    desk_clock.advance(hours=1)
    project.tick()
    letter = {"category": EVIL, "type": EVIL, "traceback": EVIL}
    (run_id,) = project.execute(EVIL, state=RunState.FAILED, error=EVIL, letter=letter)
    project.catchup("pause", EVIL, "--reason", EVIL)

    with flower(project.app) as site:
        name = quote(EVIL, safe="")
        paths = [*PAGES[:2], *PAGES[3:], f"/catchup/entry?entry={name}", f"/catchup/run/{run_id}"]
        paths += [f"/catchup/runs?entry={name}", f"/catchup?search={name}", f"/catchup/entry?entry=x{name}"]
        pages = {path: site.ask(path).text for path in paths}

    for path, page in pages.items():
        assert "<script>alert" not in page, path
        assert "alert(" in page or path in PAGES, path
        assert not re.search(r"\son\w+\s*=|style\s*=|<script(?![^>]*src=)", page), path


def test_buttons_exist_only_where_changes_are_allowed(project: Project) -> None:
    project.execute("hourly-etl", state=RunState.FAILED, error="no")
    with flower(project.app) as site:
        open_ = "".join(site.ask(path).text for path in PAGES)
    with flower(project.app, read_only=True) as site:
        read_only = "".join(site.ask(path).text for path in PAGES)
    with flower(project.app, basic_auth=[], headers={}) as site:
        unknown = "".join(site.ask(path).text for path in PAGES)

    for words in ("Pause", "Replay selected", "Discard"):
        assert words in visible_text(open_)
    for page, reason in ((read_only, "Flower is read-only"), (unknown, "--basic-auth")):
        assert "data-path" not in page
        assert 'type="checkbox"' not in page
        assert visible_text(page).count(reason) == len(PAGES)


def test_the_preview_of_a_paused_entry_is_that_of_its_resumption(
    project: Project, desk_clock: FakeClock
) -> None:
    project.catchup("pause", "hourly-etl")
    desk_clock.advance(hours=2)

    with flower(project.app) as site:
        text = visible_text(site.ask("/catchup/entry?entry=hourly-etl").text)

    assert "2026-02-07 13:00Z dispatch 2026-02-07 14:00Z dispatch 2 runs would be dispatched." in text
    assert "catchup resume hourly-etl -n" in text


def test_the_next_slot_and_the_watermark_have_their_date(redis_url: str, desk_clock: FakeClock) -> None:
    schedule = {"monthly": {"task": "proj.etl", "schedule": crontab(0, 3, day_of_month="1")}}
    project = Project(redis_url, desk_clock, schedule, {"monthly": ALL})
    project.tick()

    with flower(project.app) as site:
        text = visible_text(site.ask("/catchup").text)

    assert "03-01 03:00" in text


def test_an_empty_part_of_the_runs_leads_to_older_ones(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "LOOKED_AT", 1)

    with flower(project.app) as site:
        page = site.ask("/catchup/runs?triggerType=manual").text

    assert "Nothing matches among the newest runs; “Older” continues with those before." in page
    assert page.count('rel="next"') == 1


def test_the_numbers_of_a_backfill_add_up(project: Project) -> None:
    start, end = "2026-02-07T01:00Z", "2026-02-07T11:00Z"
    project.catchup("backfill", "hourly-etl", "--start", start, "--end", end, "-f")
    project.tick()

    with flower(project.app) as site:
        listed = site.ask("/catchup/backfills").text
        (path,) = set(re.findall(r'href="(/catchup/backfills/[^"]+)"', listed))
        page = visible_text(site.ask(path).text)

    assert "1 of 9 sent, 8 waiting, 2 skipped" in visible_text(listed)
    assert "1 of 9 sent, 8 waiting, 2 skipped" in page
    assert "8 waiting, 1 queued" in page


BACKFILL = "entry=hourly-etl&start=2026-02-07+01:00&end=2026-02-07+11:00"


@pytest.mark.parametrize(
    ("query", "words"),
    [
        (
            BACKFILL,
            "2026-02-07 08:00Z dispatch … 1 more 1 slot skip (already_exists) 1 slot skip (in_flight) 9 runs",
        ),
        (f"{BACKFILL}&reprocess=completed", "1 slot skip (in_flight)"),
        (BACKFILL, "--start 2026-02-07T01:00:00Z --end 2026-02-07T11:00:00Z"),
        (BACKFILL.replace("etl&", "etl&maxActive=0&"), "at most in flight: expected a number from 1 to 1000"),
        (f"{BACKFILL}&span=1d", "dispatch (for "),
        (f"{BACKFILL}&span=1d", "--span 1d"),
        (f"{BACKFILL}&span=soon", "one run for: "),
        ("entry=hourly-etl&start=2026-03-07&end=2026-03-08", "in the future"),
        ("entry=it%27s&start=1h&end=now", "no such entry"),
    ],
)
def test_a_backfill_is_previewed_also_without_authentication(
    project: Project, query: str, words: str
) -> None:
    project.execute("hourly-etl")
    with flower(project.app, basic_auth=[], headers={}) as site:
        text = visible_text(site.ask(f"/catchup/backfill-preview?{query}").text)

    assert words in text.replace("&#x27;", "'")
    assert "FLOWER_UNAUTHENTICATED_API" not in text


def test_runs_that_would_run_again_are_counted_in_the_question(project: Project) -> None:
    project.execute("hourly-etl")
    with flower(project.app) as site:
        page = site.ask(f"/catchup/backfill-preview?{BACKFILL}&reprocess=completed").text

    assert "1 of them have succeeded before and would run again." in page


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("slot=2026-02-07T10:00Z", "2026-02-07 10:00Z: waiting or running"),
        ("slot=2026-02-07T13:00Z", "2026-02-07 13:00Z: due, will be caught up"),
        ("slot=2026-02-07T09:30Z&to=2026-02-07T12:30Z", "3 slots: 3 waiting or running"),
    ],
)
def test_a_slot_is_explained_on_the_page_of_its_entry(
    project: Project, desk_clock: FakeClock, query: str, words: str
) -> None:
    desk_clock.advance(hours=2)

    with flower(project.app) as site:
        text = visible_text(site.ask(f"/catchup/entry?entry=hourly-etl&{query}").text)

    assert words in text


def test_the_page_of_a_run_says_why_there_is_one(project: Project) -> None:
    (run, *_) = project.json("runs")["runs"]

    with flower(project.app) as site:
        page = visible_text(site.ask(f"/catchup/run/{run['runId']}").text)

    assert "Beat was late for it, and caught it up within the window of 6h." in page


def test_a_slot_without_a_run_has_the_reason_and_its_backfill(redis_url: str, desk_clock: FakeClock) -> None:
    project = Project(redis_url, desk_clock, policies={"hourly-etl": False})
    project.tick()
    desk_clock.advance(hours=3)
    project.tick()

    with flower(project.app) as site:
        page = site.ask("/catchup/entry?entry=hourly-etl&slot=2026-02-07T10:00Z").text
        lane = site.ask("/catchup").text

    assert "Select is False: missed slots do not run." in visible_text(page)
    assert "skipped (catchup_off). Select is False: a slot that is handled more than 1m late" in visible_text(
        page
    )
    assert "(epoch 2)" in page
    assert "start=2026-02-07T10%3A00%3A00Z&amp;end=2026-02-07T10%3A00%3A00Z#backfill" in page
    assert "/catchup/entry?entry=hourly-etl&amp;slot=2026-02-07T10%3A00%3A00Z#cu-slots" in lane


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("", "Slots, last 24 h"),
        ("range=6h", "Slots, last 6 h"),
        ("range=7d&until=2026-02-06T00:00Z", "Slots, 2026-01-30 00:00Z – 2026-02-06 00:00Z"),
        ("date=2026-02-05", "Slots, Thu 05 February 2026"),
        ("range=9h", "range: expected 6h, 24h or 7d"),
        ("date=someday", "date: expected a date such as 2026-02-07"),
    ],
)
def test_the_lanes_show_the_chosen_time(project: Project, query: str, words: str) -> None:
    with flower(project.app) as site:
        text = visible_text(site.ask(f"/catchup?{query}").text)

    assert words in text.replace("&#x27;", "'")


def test_earlier_and_later_lead_to_the_neighbouring_times(project: Project) -> None:
    with flower(project.app) as site:
        now = site.ask("/catchup").text
        (earlier,) = re.findall(r'href="([^"]+)" class="cu-btn" rel="prev"', now)
        before = site.ask(earlier.replace("&amp;", "&")).text
        (later,) = re.findall(r'href="([^"]+)" class="cu-btn" rel="next"', before)

    assert "2026-02-05 12:30Z – 2026-02-06 12:30Z" in visible_text(before)
    assert later == "/catchup?range=24h"
    assert 'rel="next"' not in now


def test_times_are_in_the_zone_of_the_cookie(redis_url: str, desk_clock: FakeClock) -> None:
    project = Project(redis_url, desk_clock, timezone="America/New_York")
    project.tick()
    desk_clock.advance(hours=1)
    project.tick()

    def ask(zone: str) -> str:
        headers = {**SIGNED, "Cookie": f"catchup_zone={zone}"}
        return visible_text(site.ask("/catchup/runs?since=2026-02-07+05:00", headers=headers).text)

    with flower(project.app) as site:
        assert "2026-02-07 10:00" in ask("utc")
        assert "2026-02-07 05:00" in ask("app")
        assert "2026-02-07 19:00" in ask("local%3AAsia%2FTokyo")
        assert "2026-02-07 10:00" in ask("local%3A..%2F..%2Fetc%2Fpasswd")


# -- filters and order -----------------------------------------------------------------------


@pytest.fixture
def tenants(redis_url: str, desk_clock: FakeClock) -> Project:
    """Three entries of two tenants missed three slots each; one of them is paused."""
    names = ("tenant/acme/sync", "tenant/acme/mail", "tenant/globex/sync", "alone")
    schedule = {name: {"task": "proj.etl", "schedule": crontab(minute=0)} for name in names[:3]}
    schedule["alone"] = {"task": "proj.etl", "schedule": crontab(0, 3)}
    project = Project(redis_url, desk_clock, schedule, {"*": ALL})
    project.tick()
    desk_clock.advance(hours=3)
    project.tick()
    project.catchup("pause", "tenant/acme/mail")
    return project


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("attention=any", ["tenant/acme/sync", "tenant/acme/mail", "tenant/globex/sync"]),
        ("attention=paused", ["tenant/acme/mail"]),
        ("attention=held", []),
        ("sort=name", ["alone", "tenant/acme/mail", "tenant/acme/sync", "tenant/globex/sync"]),
        ("sort=-missed&search=a", ["tenant/acme/sync", "tenant/acme/mail", "tenant/globex/sync", "alone"]),
        ("sort=next&prefix=tenant/acme/", ["tenant/acme/sync", "tenant/acme/mail"]),
    ],
)
def test_entries_are_filtered_and_sorted(tenants: Project, query: str, names: list[str]) -> None:
    with flower(tenants.app) as site:
        page = site.ask(f"/catchup?{query}").text

    assert _entries(page) == names


def test_too_many_entries_are_not_sorted_by_their_state(
    tenants: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entries, "MOST_COMPUTED", 3)

    with flower(tenants.app) as site:
        refused = site.ask("/catchup?sort=next")
        narrowed = site.ask("/catchup?sort=next&prefix=tenant/acme/")
        by_name = site.ask("/catchup?sort=name")

    assert (refused.status, narrowed.status, by_name.status) == (400, 200, 200)
    assert "choose a prefix" in visible_text(refused.text)


def test_late_entries_need_attention_while_beat_is_down(tenants: Project, desk_clock: FakeClock) -> None:
    desk_clock.advance(hours=1)

    with flower(tenants.app) as site:
        page = site.ask("/catchup?attention=late").text

    assert _entries(page) == ["tenant/acme/sync", "tenant/globex/sync"]


def test_prefixes_that_entries_share_are_links(tenants: Project) -> None:
    with flower(tenants.app) as site:
        page = site.ask("/catchup").text

    assert "tenant/ 3" in visible_text(page)
    assert 'href="/catchup?prefix=tenant%2F"' in page


def test_entries_in_the_order_of_their_names_are_grouped_by_prefix(tenants: Project) -> None:
    with flower(tenants.app) as site:
        page = site.ask("/catchup?sort=name").text

    assert re.findall(r'scope="rowgroup"[^>]*>([^<]+)<', page) == ["tenant/acme/"]


def test_the_entries_that_for_each_makes_are_a_group(redis_url: str, desk_clock: FakeClock) -> None:
    each = {"tenant": ["eu", "us"]}
    every_hour = {"task": "proj.etl", "schedule": crontab(minute=0)}
    schedule = {"hourly-etl": every_hour, "alone": every_hour}
    project = Project(redis_url, desk_clock, schedule, {"hourly-etl": {**ALL, "for_each": each}})
    with flower(project.app) as site:
        page, group = site.ask("/catchup?sort=name").text, site.ask("/catchup?prefix=hourly-etl%5B").text

    assert "hourly-etl[*] 2" in visible_text(page)
    assert re.findall(r'scope="rowgroup"[^>]*>([^<]+)<', page) == ["hourly-etl[*]"]
    assert _entries(group) == ["hourly-etl[eu]", "hourly-etl[us]"]


def test_a_part_of_a_name_finds_runs(tenants: Project) -> None:
    with flower(tenants.app) as site:
        page = site.ask("/catchup/runs?entry=ACME").text

    assert set(re.findall(r'href="/catchup/entry\?entry=([^"]+)"', page)) == {
        "tenant%2Facme%2Fsync",
        "tenant%2Facme%2Fmail",
    }


def test_the_form_stays_after_a_wrong_value(project: Project) -> None:
    with flower(project.app) as site:
        page = site.ask("/catchup/runs?entry=hourly&since=tomorrowish").text

    assert "since: expected a time" in visible_text(page)
    assert 'name="entry" value="hourly"' in page
    assert 'name="since" value="tomorrowish"' in page


def test_dead_letters_are_grouped_by_entry_and_error(tenants: Project) -> None:
    letter = {"category": "transient", "type": "OSError"}
    for name in ("tenant/acme/sync", "tenant/globex/sync"):
        for number in (1, 2):
            error = f"OSError: port {number} is closed"
            tenants.execute(name, state=RunState.FAILED, error=error, letter=letter)

    with flower(tenants.app) as site:
        page = site.ask("/catchup/dead").text
        (href, *_) = re.findall(r'<td data-label="Dead letters" class="cu-num"><a href="([^"]+)"', page)
        group = site.ask(href.replace("&amp;", "&")).text

    assert visible_text(page).count("OSError: port # is closed") == 2
    assert group.count('type="checkbox" name="run"') == 2
    assert "tenant/globex" not in visible_text(group)


def test_all_dead_letters_that_match_are_selected(tenants: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "ROWS", 2)
    for _ in range(3):
        tenants.execute(
            "tenant/acme/sync", state=RunState.FAILED, error="no", letter={"category": "permanent"}
        )

    with flower(tenants.app) as site:
        first = site.ask("/catchup/dead").text
        (href,) = re.findall(r'href="([^"]+)">Select all 3 that match', first)
        (older,) = re.findall(r'href="([^"]+)" rel="next"', first)
        second = site.ask(older.replace("&amp;", "&")).text
        everything = site.ask(href.replace("&amp;", "&")).text

    assert "1 – 2 of 3 dead letters" in visible_text(first)
    assert "3 – 3 of 3 dead letters" in visible_text(second)
    assert len(re.findall(r'name="run" value="[^"]+" checked', everything)) == 3


def test_the_progress_of_a_running_run_is_in_the_lists(project: Project) -> None:
    with project.running("hourly-etl") as run:
        run.progress(3, 10)

    with flower(project.app) as site:
        pages = [site.ask(path).text for path in ("/catchup/runs", "/catchup/entry?entry=hourly-etl")]

    assert ["Running 3 of 10" in visible_text(page) for page in pages] == [True, True]


def test_without_a_policy_the_first_page_says_what_to_do(redis_url: str, desk_clock: FakeClock) -> None:
    project = Project(redis_url, desk_clock, policies={})

    with flower(project.app) as site:
        text = visible_text(site.ask("/catchup").text)

    assert "No entry has a catch-up policy yet" in text
    assert "catchup_entries" in text


def test_an_entry_shows_its_queue_and_whether_workers_consume_it(project: Project) -> None:
    with flower(project.app) as site:
        before = visible_text(site.ask("/catchup/entry?entry=hourly-etl").text)
        with project.operator() as operator:
            operator.workers.record_alive("celery@here", ["celery"])
        after = visible_text(site.ask("/catchup/entry?entry=hourly-etl").text)

    assert "Queue celery : no worker with the plugin has consumed it" in before
    assert "Queue celery : a worker was seen 0." in after


def test_runs_that_no_worker_takes_and_hung_runs_have_notes(project: Project, desk_clock: FakeClock) -> None:
    with flower(project.app) as site:
        desk_clock.advance(minutes=5)
        waiting = visible_text(site.ask("/catchup").text)
        with project.running("hourly-etl"):
            desk_clock.advance(hours=5)
            hung = visible_text(site.ask("/catchup").text)

    assert "1 run in queue celery wait for a worker. The oldest, of hourly-etl, for 5m 00s" in waiting
    assert "A run of hourly-etl runs far longer. For 5h 00m, on celery@here" in hung


def test_a_catch_up_that_waits_for_an_approval_has_a_note(redis_url: str, desk_clock: FakeClock) -> None:
    project = Project(redis_url, desk_clock, policies={"hourly-etl": {**ALL, "hold_above": 1}})
    project.tick()
    desk_clock.advance(hours=3)
    project.tick()

    with flower(project.app) as site:
        page = site.ask("/catchup").text
        held = site.ask("/catchup?attention=held").text

    assert "hourly-etl: a catch-up of 3 runs waits for an approval." in visible_text(page)
    assert _entries(held) == ["hourly-etl"]


def test_buttons_that_may_not_be_pressed_say_why(project: Project) -> None:
    with flower(project.app, read_only=True) as site:
        page = site.ask("/catchup").text

    assert re.search(r'aria-label="Pause hourly-etl" aria-disabled="true" title="Flower is read-only', page)


# -- nothing to show -------------------------------------------------------------------------


def test_an_app_whose_beat_never_ran_says_so(redis_url: str, desk_clock: FakeClock) -> None:
    project = Project(redis_url, desk_clock)

    with flower(project.app) as site:
        answers = {path: site.ask(path) for path in PAGES}

    assert {answer.status for answer in answers.values()} == {200}
    assert "No beat has ever run in namespace proj. Start one: celery -A " in visible_text(
        answers["/catchup"].text
    )
    assert "No run is recorded yet." in visible_text(answers["/catchup/runs"].text)


def test_an_app_without_entries_says_so(redis_url: str, desk_clock: FakeClock) -> None:
    project = Project(redis_url, desk_clock, policies={})
    project.app.conf.beat_schedule = {}

    with flower(project.app) as site:
        answer = site.ask("/catchup")

    assert answer.status == 200
    assert "The beat schedule has no entries." in visible_text(answer.text)


def test_a_wrong_configuration_is_shown_as_beat_shows_it(redis_url: str, desk_clock: FakeClock) -> None:
    project = Project(redis_url, desk_clock, policies={"hourly-etl": {"windw": "6h"}})

    with flower(project.app) as site:
        answers = [site.ask(path) for path in PAGES]

    for answer in answers:
        assert answer.status == 500
        assert "unknown field; did you mean &#x27;window&#x27;?" in answer.text.replace("&#39;", "&#x27;")
        assert "Traceback" not in answer.text


def test_an_unreachable_store_has_a_message(desk_clock: FakeClock) -> None:
    project = Project("redis://:geheim@127.0.0.1:1/0", desk_clock)

    with flower(project.app) as site:
        answers = [site.ask(path) for path in PAGES]

    for answer in answers:
        assert answer.status == 503
        assert "The store cannot be read" in answer.text
        assert "geheim" not in answer.text
        assert "Traceback" not in answer.text


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/catchup/entry?entry=hourly", 404, "did you mean"),
        ("/catchup/entry", 404, "no such entry"),
        ("/catchup/run/ffffffff", 404, "no such run"),
        ("/catchup/runs?state=sideways", 400, "state: expected waiting"),
        ("/catchup/runs?since=tomorrowish", 400, "since: expected a time"),
        ("/catchup/runs?entry=unknown", 404, "no such entry"),
        ("/catchup/runs?cursor=x", 404, "expected a cursor"),
        ("/catchup/dead?category=odd", 400, "category: expected"),
    ],
)
def test_a_refused_page_has_a_message(project: Project, path: str, status: int, words: str) -> None:
    with flower(project.app) as site:
        answer = site.ask(path)

    assert (answer.status, words in visible_text(answer.text)) == (status, True)


def test_long_lists_of_entries_are_searched_and_paged(redis_url: str, desk_clock: FakeClock) -> None:
    schedule = {f"entry-{number:04}": HOURLY for number in range(120)}
    project = Project(redis_url, desk_clock, schedule, {"*": ALL})
    project.tick()

    with flower(project.app) as site:
        first, last = site.ask("/catchup").text, site.ask("/catchup?offset=100").text
        found = site.ask("/catchup?search=ENTRY-0007").text

    assert _entries(first) == list(schedule)[:50]
    assert "1 – 50 of 120 entries" in visible_text(first)
    assert _entries(last) == list(schedule)[100:]
    assert _entries(found) == ["entry-0007"]


def _entries(page: str) -> list[str]:
    return re.findall(r'<tr data-key="([^"]+)"', page)


# -- files and headers -----------------------------------------------------------------------


def test_pages_name_no_other_host_and_no_inline_script(project: Project) -> None:
    with flower(project.app) as site:
        own = "".join(_container(site, path) for path in PAGES)
        style, script = _assets(site)

    assert not re.findall(r'(?:src|href)="(?:https?:)?//', own)
    assert "http" not in style + script.replace("the HTTP API", "").replace("XMLHttpRequest", "")


def test_style_and_script_are_served_below_the_prefix(project: Project) -> None:
    with flower(project.app, url_prefix="watch") as site:
        page = site.ask("/catchup").text
        paths = re.findall(r'"/watch(/catchup/static/[^"]+)"', page)
        kinds = [site.ask(path).headers["Content-Type"] for path in paths]
        other = site.ask("/catchup/static/catchup.py").status

    assert kinds == ["text/css; charset=utf-8", "text/javascript; charset=utf-8"]
    assert other == 404


def test_a_page_may_not_be_framed_and_runs_only_files_of_its_own(project: Project) -> None:
    with flower(project.app, headers=SIGNED) as site:
        headers = site.ask("/catchup").headers

    assert headers["X-Frame-Options"] == "DENY"
    assert "script-src 'self'" in headers["Content-Security-Policy"] or (
        "default-src 'self'" in headers["Content-Security-Policy"]
    )


def _container(site: Site, path: str) -> str:
    return site.ask(path).text.partition('<div class="cu"')[2]


def _assets(site: Site) -> tuple[str, str]:
    return site.ask("/catchup/static/catchup.css").text, site.ask("/catchup/static/catchup.js").text
