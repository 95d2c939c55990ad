"""Each page in a real browser, in both themes and at two widths."""

from __future__ import annotations

from urllib.parse import parse_qs, quote, urlsplit

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from tests.browser.browsers import NARROW, WIDE, Browser
from tests.browser.scenes import BROKEN, EVIL, LONG, POLICIES, SCHEDULE, TRACEBACK

PAGES = {
    "schedules": "/catchup",
    "runs": f"/catchup/runs?entry={BROKEN}",
    "entry": "/catchup/entry?entry=hourly-etl",
    "whatif": "/catchup/whatif?entry=hourly-etl&policy=latest",
    "dead-letters": "/catchup/dead?category=transient",
    "backfills": "/catchup/backfills",
    "stored": "/catchup/entries",
    "form": "/catchup/entries/edit",
    "evil": f"/catchup/entry?entry={quote(EVIL, safe='')}",
    "long": f"/catchup/entry?entry={LONG}",
}
PICTURES = {
    ("schedules", WIDE, "light"): "schedules",
    ("schedules", WIDE, "dark"): "schedules-dark",
    ("schedules", NARROW, "light"): "schedules-narrow",
    ("runs", WIDE, "light"): "runs",
    ("entry", WIDE, "light"): "entry",
}
"""The screenshots of the documentation."""
COLUMNS = [
    "RUN ID",
    "ENTRY",
    "TRIGGER",
    "SCHEDULED FOR",
    "STARTED AT",
    "LAG",
    "DURATION",
    "ATTEMPT",
    "STATE",
    "TASK",
]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_every_page_fits_its_window_in_both_themes(browser: Browser, width: int, theme: str) -> None:
    browser.set_window(width=width, theme=theme)

    for name, path in PAGES.items():
        browser.go(path)
        dark = browser.script("return getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0] < 100")

        assert browser.overflow() <= 0, name
        if width == WIDE:
            boxes = "[...document.querySelectorAll('.cu-tablebox')]"
            cut = f"return {boxes}.map(e => e.scrollWidth - e.clientWidth)"
            assert max(browser.script(cut), default=0) <= 0, name
        # Flower 2.0 has one theme, and the tab has its host's.
        themed = browser.script("return document.documentElement.hasAttribute('data-bs-theme')")
        assert dark == (theme == "dark" and themed), name
        if (name, width, theme) in PICTURES:
            browser.screenshot(PICTURES[name, width, theme])


def test_on_a_phone_a_run_is_one_line_and_its_slot_leads_to_it(browser: Browser) -> None:
    browser.set_window(width=NARROW)

    for path in ("/catchup/runs", "/catchup/entry?entry=hourly-etl"):
        browser.go(path)
        rows = "[...document.querySelectorAll('.cu-short tbody tr')]"
        heights = browser.script(f"return {rows}.map(row => row.getBoundingClientRect().height)")
        assert heights
        assert max(heights) < 40, path
        wide = f"return Math.max(...{rows}.map(row => row.scrollWidth - row.clientWidth))"
        assert browser.script(wide) <= 0, path
    assert "/catchup/run/" in str(browser.one(".cu-short .cu-slot").get_attribute("href"))


def test_the_schedules_show_every_entry_with_its_lane_and_the_outage(browser: Browser) -> None:
    browser.go("/catchup")

    names = browser.texts("tbody th a")
    assert [name.split("…")[0] for name in names][:3] == list(SCHEDULE)[:3]
    lanes = browser.all("svg.cu-lane")
    assert len(lanes) == len(names)
    assert "caught up late" in browser.texts("td .cu-hidden")[0]
    assert all(lane.find_elements("css selector", ".cu-band") for lane in lanes)
    assert browser.text(".cu-card:first-child .cu-value") == "running"


def test_the_banner_tells_of_the_catch_up_and_leads_to_its_runs(browser: Browser) -> None:
    browser.go("/catchup")
    count = browser.text(".cu-note strong").split()[0]

    browser.press("Show them", ".cu-note a")

    browser.until_text(f"{count} run", ".cu-pager")
    assert set(browser.texts("td .cu-badge")) == {"Catch-up"}


def test_runs_have_a_badge_and_show_slot_and_start_side_by_side(browser: Browser) -> None:
    browser.go("/catchup/runs?triggerType=catchup&entry=hourly-etl")

    assert [head for head in browser.texts("thead th") if head] == COLUMNS
    first = dict(zip(COLUMNS, browser.texts("tbody tr:first-child td")[1:], strict=True))
    assert (first["TRIGGER"], first["STATE"]) == ("Catch-up", "Succeeded")
    assert first["SCHEDULED FOR"] < first["STARTED AT"]
    assert browser.all("tbody tr:first-child td.cu-late")


def test_filters_are_links_whose_query_has_the_names_of_the_api(browser: Browser) -> None:
    browser.go("/catchup/runs")

    browser.press("Catch-up", ".cu-filters a")
    browser.until_text("Catch-up", ".cu-filters a[aria-current]")
    browser.press("Succeeded", ".cu-filters a")
    browser.until(lambda: "state=succeeded" in browser.driver.current_url, "the address")
    browser.write("input[name=entry]", "hourly-etl")
    browser.write("input[name=since]", "12h")
    browser.press("Filter")
    browser.until(lambda: "entry=" in browser.driver.current_url, "the address")

    asked = parse_qs(urlsplit(browser.driver.current_url).query)
    assert asked == {
        "triggerType": ["catchup"],
        "state": ["succeeded"],
        "entry": ["hourly-etl"],
        "since": ["12h"],
    }
    assert set(browser.texts("td[data-label=Entry]")) == {"hourly-etl"}


def test_skipped_and_missed_slots_are_there_with_their_reasons(browser: Browser) -> None:
    browser.go("/catchup/runs?state=skipped")
    assert "(superseded)" in browser.text("tbody")

    browser.press("Missed", ".cu-filters a")

    browser.until_text("(catchup_off)", "tbody")
    assert set(browser.texts("td[data-label=Entry]")) == {"send-digest"}


def test_the_task_of_a_run_leads_to_flowers_own_page(browser: Browser) -> None:
    browser.go("/catchup/runs?entry=hourly-etl")

    link = browser.one("td[data-label=Task] a").get_attribute("href")

    assert str(link).startswith(f"{browser.root}/task/")


def test_the_page_of_a_run_tells_attempts_inputs_and_the_error(browser: Browser) -> None:
    browser.go(f"/catchup/runs?state=dead&entry={BROKEN}")
    browser.one("td[data-label='Run ID'] a").click()

    browser.until(lambda: "/catchup/run/" in browser.driver.current_url, "the run")
    assert TRACEBACK.splitlines()[-1] in browser.text(".cu-note.cu-error")
    assert "ledger.push(batch)" in browser.text("pre")
    assert browser.texts("#cu-attempts tbody td[data-label=Worker]") == ["celery@worker-1"]
    browser.screenshot("run")


def test_the_page_of_an_entry_draws_its_week_and_its_starts(browser: Browser) -> None:
    browser.go("/catchup/entry?entry=hourly-etl")

    assert len(browser.all("svg.cu-heat")) == 7
    assert browser.all("svg.cu-starts line.cu-caught_up")
    assert "beat down" in browser.text("svg.cu-starts")
    assert "all, window 6h" in browser.text(".cu-facts")
    browser.until_text("catchup backfill hourly-etl --start", "#cu-backfill-preview")


def test_a_script_in_a_name_an_argument_or_an_error_stays_text(browser: Browser) -> None:
    browser.go(f"/catchup/runs?entry={quote(EVIL, safe='')}")
    run = browser.one("td[data-label='Run ID'] a").get_attribute("href")
    name = quote(EVIL, safe="")
    for path in (
        "/catchup",
        f"/catchup/entry?entry={name}",
        "/catchup/dead",
        str(run).replace(browser.root, ""),
    ):
        browser.go(path)

        assert EVIL in browser.driver.page_source.replace("&lt;", "<").replace("&gt;", ">").replace(
            "&#x27;", "'"
        )
        assert browser.all(".cu script") == []
        assert browser.driver.title != "taken"


def test_keys_go_to_the_search_and_through_the_rows(browser: Browser) -> None:
    browser.go("/catchup")

    ActionChains(browser.driver).send_keys("jjk").perform()
    assert browser.script("return document.activeElement.textContent") == "hourly-etl"
    ActionChains(browser.driver).send_keys("/j").perform()

    assert browser.script("return [document.activeElement.name, document.activeElement.value]") == [
        "search",
        "j",
    ]


def test_everything_can_be_reached_with_the_keyboard_and_is_seen_there(browser: Browser) -> None:
    browser.go("/catchup")
    reached = []
    for _ in range(110):
        ActionChains(browser.driver).send_keys(Keys.TAB).perform()
        reached.append(
            browser.script(
                "const at = document.activeElement;"
                "return [at.closest('.cu') ? at.getAttribute('aria-label') || at.textContent.trim() : '',"
                " getComputedStyle(at).outlineStyle]"
            )
        )

    words = [word for word, _ in reached if word]
    assert words[:5] == ["Catch-up", "UTC", "Local", "Schedules", "Runs"]
    for wanted in ("Search", "hourly-etl", "Pause hourly-etl", "Backfill hourly-etl", "Resume sync-crm"):
        assert wanted in words
    # A lane is one picture with words of its own, no hundred stops.
    assert len([word for word in words if word.startswith("Pause ")]) >= len(POLICIES) - 2
    assert {style for word, style in reached if word} == {"solid"}
