"""The tab inside a real Flower: sign-in, prefix, read-only, navigation, and a Flower that it does not fit."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

import pytest
from flower.urls import settings
from tornado.web import create_signed_value

from celery_catchup.flower import operators
from celery_catchup.flower.operators import operator_of
from celery_catchup.model import RunState
from celery_catchup.testing import FakeClock
from tests.integration.flowers import SIGNED, flower
from tests.integration.operating import ALL, HOURLY, Project


@pytest.fixture
def project(redis_url: str, desk_clock: FakeClock) -> Project:
    project = Project(redis_url, desk_clock)
    project.tick()
    return project


def test_the_navigation_bar_of_every_page_has_an_item_for_the_tab(project: Project) -> None:
    with flower(project.app) as site:
        page = site.ask("/broker").text + site.ask("/workers").text

    assert page.count('href="/catchup"') == 2
    assert page.count(">Catch-up</a>") == 2


def test_the_tab_lives_below_flowers_prefix(project: Project) -> None:
    with flower(project.app, url_prefix="watch/") as site:
        assert site.ask("/catchup").status == 200
        assert 'href="/watch/catchup"' in site.ask("/workers").text


def cookie_of(user: str) -> str:
    return create_signed_value(settings["cookie_secret"], "user", user).decode()


def test_with_oauth_strangers_are_sent_to_the_login_and_the_api_says_401(project: Project) -> None:
    with flower(project.app, headers={}, basic_auth=None, auth=r"ada@example.com") as site:
        page, call = site.ask("/catchup/runs?state=dead"), site.get("/status")

    assert page.status == 302
    assert page.headers["Location"] == "/login?next=%2Fcatchup%2Fruns%3Fstate%3Ddead"
    assert call.status == 401
    assert call.headers["WWW-Authenticate"] is None


def test_with_oauth_a_session_may_look_and_needs_the_token_to_change_something(project: Project) -> None:
    session = {"Cookie": f"user={cookie_of('ada@example.com')}"}
    token = {"Cookie": f"{session['Cookie']}; _xsrf=t", "X-XSRFToken": "t"}
    pause = "/schedules/hourly-etl/pause"
    with flower(project.app, headers=session, basic_auth=None, auth=r"ada@example.com") as site:
        assert site.ask("/catchup").status == 200
        assert site.get("/status").status == 200
        assert site.post(pause).status == 403
        assert site.get("/status", headers={"Cookie": f"user={cookie_of('eve@example.com')}"}).status == 401
        assert site.post(pause, headers=token).status == 200


def test_the_tab_needs_a_login(project: Project) -> None:
    with flower(project.app, headers={}) as site:
        assert site.ask("/catchup").status == 401
        assert site.ask("/catchup", headers=SIGNED).status == 200


def test_entries_that_change_under_way_are_read_again_on_the_same_connection(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operators, "FOLLOW_EVERY", 0)
    with flower(project.app) as site:
        assert site.get("/schedules").json["total"] == 1
        before = operator_of(project.app)
        project.app.conf.beat_schedule["late-comer"] = HOURLY
        assert site.get("/schedules").json["total"] == 1

        monkeypatch.setattr(before.source, "has_changed", lambda: True)

        assert site.get("/schedules").json["total"] == 2
        assert operator_of(project.app).store is before.store


def test_a_configuration_with_mistakes_is_reported_until_it_is_fixed(project: Project) -> None:
    project.app.conf.catchup_entries = {"hourly-etl": "soon"}
    with flower(project.app) as site:
        answer = site.get("/status")
        assert answer.status == 500
        assert answer.json["mistakes"][0]["where"].startswith("catchup_entries.hourly-etl")
        assert site.ask("/catchup").status == 500

        project.app.conf.catchup_entries = {"hourly-etl": "6h"}
        assert site.get("/status").status == 200


def test_a_script_in_a_name_or_an_error_stays_text_on_every_page(
    redis_url: str, desk_clock: FakeClock
) -> None:
    script = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'"
    entry = {**HOURLY, "task": "elsewhere", "kwargs": {script: script}}
    project = Project(redis_url, desk_clock, {script: entry}, {script: ALL})
    project.tick()
    desk_clock.set("2026-02-07T12:02:00Z")
    project.tick()
    letter = {"type": script, "category": "permanent", "traceback": script}
    (run,) = project.execute(script, state=RunState.FAILED, error=script, letter=letter)
    name = quote(script, safe="")
    paths = ("", f"/entry?entry={name}", "/runs", f"/runs?entry={name}", f"/run/{run}", "/dead", "/backfills")
    with flower(project.app) as site:
        pages = {path: site.ask(f"/catchup{path}") for path in paths}
        pages["search"] = site.ask(f"/catchup?search={name}")
        pages["wrong"] = site.ask(f"/catchup/runs?state={name}")
        pages["unknown"] = site.ask(f"/catchup/entry?entry={name}x")

    for path, page in pages.items():
        assert "<script>alert" not in page.text, path
        assert "<img src=x" not in page.text, path
        assert page.headers["X-Frame-Options"] == "DENY", path
        assert "default-src 'self'" in page.headers["Content-Security-Policy"], path
    assert "&lt;script&gt;alert(1)" in pages["/dead"].text


def test_flower_goes_on_while_the_store_keeps_requests_waiting(project: Project) -> None:
    with flower(project.app) as site, ThreadPoolExecutor(20) as threads, project.operator() as operator:
        assert site.get("/status").status == 200
        operator.store.client.client_pause(1500)

        waiting = [threads.submit(site.get, path) for path in ("/status", "/runs", "/overview") * 5]
        answers = [site.get("/openapi.json").status for _ in range(3)]
        still_waiting = sum(not one.done() for one in waiting)

    assert answers == [200] * 3
    assert still_waiting == len(waiting)
    assert {one.result().status for one in waiting} == {200}
