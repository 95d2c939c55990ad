"""axe-core finds nothing on any page, in both themes and at three widths."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from tests.browser.browsers import NARROW, WIDE, Browser
from tests.browser.scenes import BROKEN, LONG, Scene
from tests.browser.test_page_display import PAGES

AXE = (Path(__file__).parent / "axe" / "axe.min.js").read_text(encoding="utf-8")
RUN = """
const [only, done] = arguments, options = {resultTypes: ["violations"]};
if (only) { options.runOnly = [only]; }
axe.run(".cu", options).then(found => done(found.violations));
"""
WIDTHS, THEMES = (NARROW, WIDE, 1920), ("light", "dark")


@pytest.fixture(scope="module")
def pages(scene: Scene) -> list[str]:
    """Every page, also messages and pages with nothing to show."""
    runs = scene.project.json("runs", BROKEN, "--state", "dead")["runs"]
    start, end = "2026-01-02T00:00Z", "2026-01-03T00:00Z"
    scene.project.catchup("backfill", LONG, "--start", start, "--end", end, "-f")
    (backfill, *_) = scene.project.json("backfill", "list")["backfills"]
    return [
        *PAGES.values(),
        "/catchup?attention=any&sort=-lag&range=6h",
        f"/catchup/entry?entry={LONG}&slot={start}&to={end}",
        f"/catchup/run/{runs[0]['runId']}",
        f"/catchup/backfills/{backfill['id']}",
        f"/catchup/backfill-preview?entry={LONG}&start={start}&end={end}",
        "/catchup/entries",
        "/catchup/entries/edit",
        "/catchup/audit",
        "/catchup/runs?state=missed",
        "/catchup/runs?since=whenever",
        "/catchup/entry?entry=nothing",
    ]


@pytest.mark.timeout(300)  # a hundred examinations; a busy machine needs more than two minutes
def test_axe_finds_nothing(browser: Browser, pages: list[str]) -> None:
    found = []
    for path in pages:
        browser.go(path)
        browser.script(AXE)
        for width, theme in product(WIDTHS, THEMES):
            browser.set_window(width=width, theme=theme)
            # Nothing but the contrast depends on the theme.
            only = None if theme == "light" else "color-contrast"
            for one in browser.driver.execute_async_script(RUN, only):
                nodes = one["nodes"][:3]
                found += [f"{path} {width} {theme}: {one['id']}: {node['html'][:160]}" for node in nodes]
    # Chromium writes answers with an error status to the console.
    browser.collect_logs()
    browser.console = [line for line in browser.console if "status of 40" not in line]

    assert not found, "\n".join(found)
