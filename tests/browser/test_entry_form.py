"""The form of a stored entry in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from urllib.parse import quote

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

from celery_catchup.stored_entries.entries import Entries
from celery_catchup.stored_entries.stored_entry import StoredEntry
from tests.browser.browsers import Browser, chromium
from tests.browser.scenes import EVIL, Scene
from tests.browser.test_accessibility import AXE, RUN, THEMES, WIDTHS
from tests.integration.flowers import flower

FORM = "/catchup/entries/edit"


@pytest.fixture
def entries(scene: Scene) -> Iterator[Entries]:
    """The stored entries, as another program changes them; none is left over."""
    with scene.project.operator() as operator:
        yield operator.stored_entries
        operator.stored_entries.delete_many([one.name for one in operator.stored_entries.list()])


@pytest.fixture
def sync(entries: Entries) -> StoredEntry:
    policy = {"window": "6h", "overlapPolicy": "all", "exclude": ["2026-12-25"], "pause_on_failure": True}
    return entries.create(
        "sync", task="proj.sync", schedule={"every": "15m"}, catchup=policy, labels={"team": "a"}, args=[1]
    )


def field(name: str) -> str:
    return f"#cu-f-{name}"


def mistakes(browser: Browser) -> dict[str, str]:
    """The mistakes that are shown, by field."""
    code = (
        "return [...document.querySelectorAll('.cu-mistake')]"
        ".map(e => [e.closest('[data-field]').dataset.field, e.textContent])"
    )
    return dict(browser.script(code))


def toggle_all_fields(browser: Browser) -> None:
    browser.script("document.querySelector('summary').click()")


def expect_refusals(browser: Browser, path: str = "") -> None:
    """Expect answers with an error status (of one path), which Chromium writes to the console."""
    browser.collect_logs()
    browser.console = [line for line in browser.console if not ("status of 4" in line and path in line)]


def test_an_entry_is_created_with_a_preview_of_its_slots(browser: Browser, entries: Entries) -> None:
    browser.go("/catchup/entries")
    browser.press("New entry", ".cu-find a")
    browser.write(field("name"), "invoices/acme")
    browser.write(field("task"), "proj.invoices")
    browser.write(field("schedule"), "0 6 * * 1-5")
    browser.write(field("kwargs"), '{"customer": "acme"}')
    browser.write(field("labels"), "team=billing")
    browser.one("input[value=policy]").click()
    browser.write("#cu-p-window", "2d")
    Select(browser.one("#cu-p-overlap_policy")).select_by_value("all")
    toggle_all_fields(browser)
    browser.write("#cu-p-max_runs", "3")
    browser.write("#cu-p-timezone", "Europe/Berlin")

    browser.until(lambda: browser.texts(".cu-upcoming th") == ["Europe/Berlin", "UTC"], "the zones")
    assert len(browser.texts(".cu-upcoming tbody tr")) == 10
    local, utc = browser.texts(".cu-upcoming tbody tr:first-child td")
    assert " 06:00 +0" in local
    assert utc.endswith(("04:00", "05:00"))
    toggle_all_fields(browser)
    browser.screenshot("entry-form")
    browser.press("Create")

    browser.until_text("invoices/acme", "#cu-rows")
    browser.screenshot("stored-entries")
    made = entries.get("invoices/acme")
    assert made.fields() == {
        "name": "invoices/acme",
        "task": "proj.invoices",
        "schedule": "0 6 * * 1-5",
        "kwargs": {"customer": "acme"},
        "labels": {"team": "billing"},
        "catchup": {"window": "2d", "overlap_policy": "all", "max_runs": 3, "timezone": "Europe/Berlin"},
    }
    assert made.created_by == "ada in Flower"
    expect_refusals(browser, "/entries/preview")  # of a form that was half filled in


def test_every_mistake_is_beside_its_field(browser: Browser, entries: Entries) -> None:
    browser.go(FORM)
    browser.write(field("task"), "os.system")
    browser.write(field("schedule"), "61 * * * *")
    browser.write(field("args"), "[1,")
    browser.one("input[value=policy]").click()
    browser.write("#cu-p-window", "6x")
    toggle_all_fields(browser)
    browser.write("#cu-p-max_runs", "many")
    toggle_all_fields(browser)
    browser.press("Create")

    browser.until(lambda: len(mistakes(browser)) == 6, "all of them")
    found = mistakes(browser)
    assert set(found) == {"name", "task", "schedule", "args", "catchup.window", "catchup.max_runs"}
    assert "add a pattern for it to catchup_allowed_tasks" in found["task"]
    assert "expected a whole number" in found["catchup.max_runs"]
    assert "6 mistakes; nothing was saved." in browser.text("#cu-form-note")
    assert browser.script("return document.activeElement.id") == "cu-f-name"
    assert browser.script("return document.querySelector('details').open"), "a mistake in it is seen"
    described = str(browser.one(field("schedule")).get_attribute("aria-describedby")).split()[-1]
    assert browser.text(f"#{described}") == found["schedule"]
    axe(browser)
    browser.write(field("schedule"), "0 * * * *")
    assert "schedule" not in mistakes(browser)
    assert entries.list() == []
    expect_refusals(browser)


def test_an_entry_is_changed_and_what_was_not_touched_stays(
    browser: Browser, entries: Entries, sync: StoredEntry
) -> None:
    browser.go("/catchup/entries")
    browser.press("Edit sync", "a")

    browser.until(lambda: browser.all(field("schedule")), "the form")
    assert browser.one(field("schedule")).get_attribute("value") == "15m"
    assert browser.one("#cu-p-exclude").get_attribute("value") == '["2026-12-25"]'
    browser.write(field("schedule"), "30m")
    browser.press("Save")

    browser.until_text("every 30m", "#cu-rows")
    changed = entries.get("sync")
    assert changed.schedule == {"every": "30m"}
    assert changed.catchup == {
        "window": "6h",
        "overlap_policy": "all",
        "exclude": ["2026-12-25"],
        "pause_on_failure": True,
    }
    assert (changed.args, changed.labels, changed.changed_by) == ([1], {"team": "a"}, "ada in Flower")


def test_a_change_by_another_person_is_shown_before_it_is_overwritten(
    browser: Browser, entries: Entries, sync: StoredEntry
) -> None:
    browser.go(f"{FORM}?entry=sync")
    entries.update("sync", description="changed elsewhere")
    browser.write(field("schedule"), "45m")
    browser.press("Save")

    browser.until_text("Changed by tester@here meanwhile", "#cu-form-note")
    assert ": description. Nothing was saved." in browser.text("#cu-form-note")
    assert entries.get("sync").schedule == {"every": "15m"}
    browser.press("Save mine over it")
    browser.until_text("every 45m", "#cu-rows")
    assert entries.get("sync").description == ""
    expect_refusals(browser)


def test_an_entry_that_was_deleted_meanwhile_is_not_saved(
    browser: Browser, entries: Entries, sync: StoredEntry
) -> None:
    browser.go(f"{FORM}?entry=sync")
    entries.delete("sync")
    browser.press("Save")

    browser.until_text("deleted meanwhile", "#cu-form-note")
    expect_refusals(browser)


def test_an_entry_is_disabled_enabled_and_deleted(
    browser: Browser, entries: Entries, sync: StoredEntry
) -> None:
    browser.go("/catchup/entries")

    browser.press("Disable sync")
    assert "are not caught up" in browser.answer_dialog("Disable")
    browser.until_text("disabled", "#cu-rows td[data-label=State]")
    assert not entries.get("sync").enabled
    browser.press("Enable sync")
    browser.until_text("enabled", "#cu-rows td[data-label=State]")
    browser.press("Delete sync")
    assert "Delete “sync”?" in browser.answer_dialog("Delete")

    browser.until_text("No entry was created at run time", "#cu-rows")
    assert entries.list() == []


def test_an_entry_that_runs_once_is_recovered_unless_it_says_otherwise(
    browser: Browser, entries: Entries
) -> None:
    browser.go(FORM)
    Select(browser.one(field("kind"))).select_by_value("at")
    assert browser.one("#cu-p-window").get_attribute("value") == "7d"
    browser.write(field("name"), "later")
    browser.write(field("task"), "proj.once")
    browser.write(field("schedule"), "2099-12-01T09:00:00Z")

    browser.until(
        lambda: browser.texts(".cu-upcoming tbody tr") == ["2099-12-01 09:00 +00:00 2099-12-01 09:00"], "it"
    )
    browser.press("Create")
    browser.until_text("once at 2099-12-01T09:00:00Z", "#cu-rows")
    assert entries.get("later").catchup == {"window": "7d"}
    expect_refusals(browser, "/entries/preview")  # of a form that was half filled in


def test_a_script_in_a_name_stays_text_and_the_keyboard_is_enough(browser: Browser, entries: Entries) -> None:
    browser.go(FORM)
    keys = ActionChains(browser.driver)
    browser.script("document.getElementById('cu-f-name').focus()")
    keys.send_keys(EVIL[:-1], Keys.TAB, "proj.evil", Keys.TAB, EVIL, Keys.TAB, "a=", EVIL, Keys.TAB, Keys.TAB)
    keys.send_keys(Keys.TAB, "0 * * * *", Keys.TAB, Keys.ENTER).perform()

    browser.until_text("proj.evil", "#cu-rows")
    browser.go(f"{FORM}?entry={quote(EVIL[:-1])}")
    assert browser.one(field("labels")).get_attribute("value") == f"a={EVIL}"
    assert browser.all(".cu script") == []
    assert browser.driver.title != "taken"


def test_the_form_fits_every_window_and_axe_finds_nothing(
    browser: Browser, entries: Entries, sync: StoredEntry
) -> None:
    entries.create("off", task="proj.sync", schedule=["0 6 * * *", "30 18 * * *"], enabled=False)
    for path in ("/catchup/entries", f"{FORM}?entry=sync", f"{FORM}?entry=off"):
        browser.set_window()
        browser.go(path)
        if path != "/catchup/entries":
            browser.until(lambda: browser.all(".cu-upcoming tbody tr"), "the preview")
        axe(browser)


def axe(browser: Browser) -> None:
    browser.script(AXE)
    found = []
    for width, theme in product(WIDTHS, THEMES):
        browser.set_window(width=width, theme=theme)
        browser.screenshot(f"form-{width}-{theme}")
        assert browser.overflow() <= 0, (width, theme)
        for one in browser.driver.execute_async_script(RUN, None if theme == "light" else "color-contrast"):
            found += [f"{width} {theme}: {one['id']}: {node['html'][:160]}" for node in one["nodes"][:3]]
    browser.set_window()
    assert not found, "\n".join(found)


def test_without_authentication_the_form_says_why_it_changes_nothing(
    scene: Scene, sync: StoredEntry, tmp_path: Path
) -> None:
    with (
        flower(scene.project.app, basic_auth=[]) as site,
        chromium(f"http://127.0.0.1:{site.port}", user="", password="", folder=tmp_path) as browser,
    ):
        browser.go("/catchup/entries")
        browser.press("New entry")
        browser.until_text("Flower has no authentication", ".cu-says")
        browser.go(f"{FORM}?entry=sync")
        assert "Flower has no authentication" in browser.text("#cu-form-why")
        assert not browser.one(field("schedule")).is_enabled()
        browser.press("Save")
        browser.until_text("Flower has no authentication", ".cu-says")


def test_a_read_only_flower_shows_entries_and_their_slots(scene: Scene, sync: StoredEntry) -> None:
    with flower(scene.project.app, read_only=True) as site:
        page = site.ask(f"{FORM}?entry=sync").text
        listed = site.ask("/catchup/entries").text

    assert "Flower is read-only" in page
    assert '<fieldset class="cu-fields" disabled>' in page
    assert 'aria-label="Delete sync" aria-disabled="true"' in listed
