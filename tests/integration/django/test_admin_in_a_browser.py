"""The admin of a periodic task in a real browser: its policy, mistakes beside fields, its facts."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest
from selenium.webdriver.support.ui import Select

from celery_catchup.testing import FakeClock
from tests import services
from tests.browser.browsers import Browser, chromium, why_there_is_no_browser
from tests.integration.beat.test_django_source import hourly
from tests.integration.django.test_admin import page_of, serve_by_django, signed_in
from tests.integration.django_projects import DjangoProject
from tests.integration.operating import Project

pytestmark = pytest.mark.browser


class QuietHandler(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Write nothing."""


@pytest.fixture
def address(django_project: DjangoProject) -> Iterator[str]:
    """The address of a Django that is served in a thread of its own."""
    from django.contrib.staticfiles.handlers import StaticFilesHandler
    from django.core.wsgi import get_wsgi_application

    server = make_server(
        "127.0.0.1", 0, StaticFilesHandler(get_wsgi_application()), handler_class=QuietHandler
    )
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join(20)


@pytest.fixture
def browser(address: str, tmp_path: Path) -> Iterator[Browser]:
    if reason := why_there_is_no_browser():
        services.missing("chromium", reason)
    with chromium(address, user="", password="", folder=tmp_path) as found:
        yield found


def test_a_policy_is_written_corrected_and_saved(
    browser: Browser,
    redis_url: str,
    desk_clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from django_celery_beat.models import PeriodicTask

    project = Project(
        redis_url, desk_clock, {"other": {"task": "x", "schedule": 60}}, {}, catchup_source="django"
    )
    serve_by_django(project, monkeypatch)
    PeriodicTask.objects.all().delete()
    row = hourly(PeriodicTask.objects)
    client = signed_in(superuser=True)
    browser.driver.get(f"{browser.root}/admin/login/")
    browser.driver.add_cookie({"name": "sessionid", "value": client.cookies["sessionid"].value})
    browser.driver.get(browser.root + page_of(row))

    browser.write("#id_catchup_policy-0-window", "6x")
    Select(browser.one("#id_catchup_policy-0-overlap_policy")).select_by_value("all")
    browser.one("input[name=_continue]").click()
    browser.until(lambda: "unknown unit" in browser.text(".field-window .errorlist"), "the mistake")
    browser.write("#id_catchup_policy-0-window", "6h")
    browser.one("input[name=_continue]").click()

    browser.until(lambda: "was changed successfully" in browser.text(".messagelist"), "the message")
    assert "Policy: all, window 6h, overlap all" in browser.text(".catchup-panel")
    assert "Next slots: 2026-02-07 10:00:00 UTC" in browser.text(".catchup-panel")
    browser.script("document.querySelector('.catchup-panel').closest('fieldset').scrollIntoView()")
    browser.screenshot("django-admin")
    browser.set_window(width=390)
    assert browser.overflow() <= 0
