"""The tab inside a real Flower: sign-in, prefix, read-only, navigation, and a Flower that it does not fit."""

from __future__ import annotations

import pytest

from celery_catchup.testing import FakeClock
from tests.integration.flowers import SIGNED, flower
from tests.integration.operating import Project


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


def test_nobody_sees_the_tab_without_signing_in(project: Project) -> None:
    with flower(project.app, headers={}) as site:
        assert site.ask("/catchup").status == 401
        assert site.ask("/catchup", headers=SIGNED).status == 200
