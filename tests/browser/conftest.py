"""Fixtures of the browser tests: a played day, a Flower that shows it, and a Chromium."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

import pytest

from celery_catchup.flower import fleet
from celery_catchup.operations.fleet import Fleet
from tests import services
from tests.browser.browsers import Browser, chromium, why_there_is_no_browser
from tests.browser.scenes import WORKER, Scene
from tests.integration.flowers import PASSWORD, USER, Site, flower

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here needs a browser."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def _chromium_is_there() -> None:
    reason = why_there_is_no_browser()
    if reason:
        services.missing("chromium", reason)


@pytest.fixture(scope="module")
def scene(_chromium_is_there: None) -> Iterator[Scene]:
    """A day that was played, on a server of its own, and goes on."""
    with services.private_server() as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("CELERY_APP", "proj")  # as commands on the pages name it
        patch.setattr(socket, "gethostname", lambda: "app-1")  # pictures go into the documentation
        patch.setattr(fleet, "ask_fleet", lambda operator: Fleet(asked=True, workers=(WORKER,)))
        played = Scene(server.url(), now=datetime.now(UTC), dense=bool(os.environ.get("CATCHUP_SCREENSHOTS")))
        played.play()
        with played.going_on():
            yield played


@pytest.fixture(scope="module")
def site(scene: Scene) -> Iterator[Site]:
    """Flower, with authentication on."""
    with flower(scene.project.app) as running:
        yield running


@pytest.fixture(scope="module")
def window(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One Chromium for all tests; to start one takes longer than most tests."""
    root = f"http://127.0.0.1:{site.port}"
    folder = tmp_path_factory.mktemp("chromium")
    with chromium(root, user=USER, password=quote(PASSWORD, safe=""), folder=folder) as browser:
        yield browser


@pytest.fixture
def browser(window: Browser) -> Iterator[Browser]:
    """A fresh window; the test fails if its console has errors or a request leaves the server."""
    window.set_window()
    window.collect_logs()
    window.console.clear()
    window.requests.clear()
    yield window
    window.collect_logs()
    assert not window.console, "\n".join(window.console)
    assert [url for url in window.requests if not url.startswith((window.root, "data:"))] == []
