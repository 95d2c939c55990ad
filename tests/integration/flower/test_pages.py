"""The pages of the tab in a real Flower, also empty ones and messages."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest
from celery.schedules import crontab

from celery_catchup.model import RunState
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
    assert "celery -A proj catchup preview hourly-etl" in text
    assert "Policy all, window 6h Overlap all" in text


def test_a_dead_letter_shows_category_error_and_traceback(project: Project) -> None:
    letter = {"category": "transient", "type": "OSError", "traceback": "Traceback: the wire was cut"}
    (run_id, *_) = project.execute("hourly-etl", state=RunState.FAILED, error="OSError: cut", letter=letter)

    with flower(project.app) as site:
        listed = visible_text(site.ask("/catchup/dead").text)
        of_another = visible_text(site.ask("/catchup/dead?category=permanent").text)
        page = visible_text(site.ask(f"/catchup/run/{run_id[:8]}").text)

    assert "Dead letters (1)" in listed
    assert "transient OSError: cut" in listed
    assert "No dead letters." in of_another
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
