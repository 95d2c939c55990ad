"""The actions of the pages in a real browser, with a running beat and worker."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

from selenium.webdriver.common.keys import Keys

from tests.browser.browsers import Browser, chromium
from tests.browser.scenes import BROKEN, EVIL, LONG, Scene
from tests.integration.flowers import Site, flower

DAY = timedelta(days=1)
PREVIEW = "#cu-backfill-preview"


def stamp(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%MZ}"


def test_an_entry_is_paused_and_resumed(browser: Browser, scene: Scene) -> None:
    browser.go("/catchup")

    browser.press("Pause hourly-etl")
    browser.write(".cu-dialog input", "the warehouse moves")
    assert "until it is resumed" in browser.answer_dialog("Pause")
    browser.until_text("“hourly-etl” is paused", ".cu-says")
    browser.until(lambda: "paused" in browser.texts("tr[data-key=hourly-etl] .cu-badge"), "the badge")
    assert "hourly-etl" in scene.project.json("status")["paused"]
    assert browser.one("tr[data-key=hourly-etl] .cu-badge").get_attribute("title") == "the warehouse moves"

    browser.press("Resume hourly-etl")
    assert "would be dispatched" in browser.answer_dialog("Resume")
    browser.until_text("“hourly-etl” is resumed", ".cu-says")
    browser.until(lambda: not browser.all("tr[data-key=hourly-etl] .cu-badge"), "no badge")
    assert "hourly-etl" not in scene.project.json("status")["paused"]


def test_a_dialog_can_be_left_without_changing_anything(browser: Browser, scene: Scene) -> None:
    browser.go("/catchup/entry?entry=sync-crm")

    browser.press("Resume sync-crm")
    browser.answer_dialog("Back")

    browser.until(lambda: not browser.all(".cu-dialog"), "no dialog")
    assert "sync-crm" in scene.project.json("status")["paused"]


def test_a_run_is_started_now(browser: Browser, scene: Scene) -> None:
    browser.go("/catchup/entry?entry=send-digest")

    browser.press("Run now: send-digest")
    assert "Start a run of “send-digest” now?" in browser.answer_dialog("Run now")

    browser.until_text("A run of “send-digest” is started.", ".cu-says")
    browser.until(lambda: "Manual" in browser.texts("#cu-rows .cu-badge"), "the run")


def test_the_focus_returns_to_the_button_when_a_dialog_is_left(browser: Browser) -> None:
    browser.go("/catchup/entry?entry=sync-crm")

    browser.press("Resume sync-crm")
    browser.one(".cu-dialog button").send_keys(Keys.ESCAPE)

    browser.until(lambda: not browser.all(".cu-dialog"), "no dialog")
    assert browser.script("return document.activeElement.ariaLabel") == "Resume sync-crm"


def test_several_entries_are_paused_and_resumed_together(browser: Browser, scene: Scene) -> None:
    browser.go("/catchup?search=e")
    names = ["hourly-etl", "send-digest"]
    for name in names:
        browser.one(f"input[value={name}]").click()

    browser.press("Pause selected…")
    browser.write(".cu-dialog input", "maintenance")
    assert "Pause 2 entries?" in browser.answer_dialog("Pause")
    browser.until(lambda: set(names) <= set(scene.project.json("status")["paused"]), "two paused entries")
    browser.until(lambda: not browser.all("input[name=entry]:checked"), "no selection")
    for name in names:
        browser.one(f"input[value={name}]").click()
    browser.press("Resume selected…")
    assert "Resume 2 entries?" in browser.answer_dialog("Resume")

    browser.until(lambda: not set(names) & set(scene.project.json("status")["paused"]), "none is paused")


def test_a_backfill_is_previewed_dispatched_and_seen_to_its_end(browser: Browser, scene: Scene) -> None:
    end = scene.now - 12 * DAY
    start = end - DAY + timedelta(minutes=1)  # eight slots at any time of the day
    browser.go(f"/catchup/entry?entry={LONG}#backfill")
    browser.write("input[name=start]", stamp(start))
    browser.write("input[name=end]", stamp(end))

    browser.until_text("Dispatch 8 runs", PREVIEW)
    assert browser.texts("[data-count]") == ["8", "8", "8"]
    assert "8 runs would be dispatched." in browser.text(f"{PREVIEW} pre")
    assert browser.text(".cu-form + div .cu-command") == (
        f"celery -A proj catchup backfill {LONG} "
        f"--start {start:%Y-%m-%dT%H:%M:%SZ} --end {end:%Y-%m-%dT%H:%M:%SZ}"
    )
    browser.script("document.querySelector('#backfill').scrollIntoView({behavior: 'instant'})")
    browser.screenshot("backfill")
    browser.press("Dispatch 8 runs")
    question = browser.answer_dialog("Dispatch 8 runs")
    assert f"Dispatch 8 runs of “{LONG}”? Slots from {start:%Y-%m}" in question

    browser.until(lambda: browser.driver.current_url.endswith("/catchup/backfills"), "the list")
    browser.until_text("completed", "#cu-rows tbody tr:first-child")
    assert "8 of 8 sent" in browser.text("#cu-rows tbody tr:first-child")
    browser.one("#cu-rows tbody tr:first-child a").click()
    browser.until(lambda: browser.texts("td[data-label=State]") == ["Succeeded"] * 8, "eight runs")
    assert "Requested by ada in Flower" in browser.text("#cu-facts")
    assert "8 succeeded" in browser.text("#cu-facts")


def test_what_cannot_be_backfilled_is_a_sentence_in_its_place(browser: Browser, scene: Scene) -> None:
    browser.go("/catchup/entry?entry=hourly-etl")

    browser.write("input[name=start]", stamp(datetime.now(UTC) + DAY))
    browser.write("input[name=end]", stamp(datetime.now(UTC) + 2 * DAY))
    browser.until_text("future", PREVIEW)
    browser.write("input[name=end]", "whenever")
    browser.until_text("end: expected a time", PREVIEW)

    assert not browser.all(f"{PREVIEW} button")


def test_recorded_outages_are_played_again_on_the_page_of_the_entry(browser: Browser, scene: Scene) -> None:
    browser.go("/catchup/entry?entry=hourly-etl#whatif")

    browser.script("document.querySelector('select[name=policy]').value = 'latest'")
    browser.press("Play again")
    browser.until_text("instead of", "#cu-whatif")

    assert "superseded" in browser.text("#cu-whatif")
    assert "/catchup/entry?" in browser.script("return location.href")
    browser.write("form[data-result] input[name=window]", "6")
    browser.press("Play again")
    browser.until_text("window:", "#cu-whatif")


def test_a_time_without_an_offset_is_read_in_the_zone_of_the_page(browser: Browser, scene: Scene) -> None:
    day = f"{scene.now - 12 * DAY:%Y-%m-%d}"
    browser.driver.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": "Asia/Tokyo"})
    browser.go("/catchup/entry?entry=hourly-etl")
    try:
        browser.press("Local", ".cu-zones button")
        browser.until_text("Local (Asia/Tokyo)", ".cu-zones")
        browser.write("input[name=start]", f"{day} 10:00")
        browser.write("input[name=end]", f"{day} 11:00")

        browser.until_text(f"--start {day}T01:00:00Z --end {day}T02:00:00Z", f"{PREVIEW} .cu-command")
        browser.until_text(f"{day} 10:00+09:00 dispatch", PREVIEW)
        browser.go("/catchup/runs")
        assert "Since (Asia/Tokyo)" in browser.text(".cu-find")
    finally:
        browser.press("UTC", ".cu-zones button")
        browser.driver.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": "UTC"})
        browser.until(lambda: browser.all(".cu-zones [data-zone=utc][aria-pressed=true]"), "UTC")


def test_a_backfill_is_paused_resumed_and_cancelled(browser: Browser, scene: Scene) -> None:
    start, end = scene.now - 30 * DAY, scene.now - 19 * DAY
    scene.project.catchup(
        "backfill", "sync-crm", "--start", start.isoformat(), "--end", end.isoformat(), "-f"
    )
    scene.project.catchup("backfill", "pause", scene.project.json("backfill", "list")["backfills"][0]["id"])
    browser.go("/catchup/backfills")
    row = "#cu-rows tbody tr:first-child"
    name = browser.text(f"{row} th a")

    browser.until_text("paused", row)
    browser.press(f"Resume backfill {name}")
    browser.until_text("running", row)
    browser.press(f"Pause backfill {name}")
    browser.until_text("paused", row)
    browser.press(f"Cancel backfill {name}")
    assert "will not run" in browser.answer_dialog("Cancel the backfill")

    browser.until_text("cancelled", row)
    assert not browser.all(f"{row} button")


def test_dead_letters_are_replayed_together_and_seen_to_succeed(browser: Browser, scene: Scene) -> None:
    scene.fixed = True
    browser.go(f"/catchup/runs?state=dead&entry={BROKEN}")
    boxes = browser.all("input[name=run]")
    ids = [str(box.get_attribute("value")) for box in boxes]
    assert len(ids) >= 2

    browser.one("input[data-all]").click()
    browser.until_text(f"{len(ids)} runs selected", ".cu-bulk")
    browser.press("Replay selected")
    assert f"Replay {len(ids)} runs?" in browser.answer_dialog("Replay")

    browser.until_text(f"{len(ids)} replayed", ".cu-says")
    browser.until_text("Nothing matches these filters.", "#cu-rows")
    browser.go(f"/catchup/run/{ids[0]}")
    browser.until_text("Succeeded", "#cu-badges")
    assert browser.texts("#cu-attempts td[data-label=Attempt]") == ["1", "2"]


def test_a_dead_letter_is_discarded_after_a_question(browser: Browser, scene: Scene) -> None:
    browser.go("/catchup/dead?category=permanent")
    before = len(browser.all("input[name=run]"))
    run = str(browser.one("input[name=run]").get_attribute("value"))

    browser.press(f"Discard run {run[:8]}")
    assert "stays in the ledger" in browser.answer_dialog("Discard")

    browser.until(lambda: len(browser.all("input[name=run]")) == before - 1, "one less")
    assert scene.project.json("runs", "show", run)["run"]["state"] == "failed"


def test_a_page_follows_what_happens_and_keeps_selection_and_place(browser: Browser, scene: Scene) -> None:
    browser.set_window(height=400)
    browser.go("/catchup/runs?entry=refresh-dashboard")
    chosen = browser.script(
        "const box = document.querySelectorAll('input[name=run]')[3]; box.click(); return box.value"
    )
    browser.script("scrollTo({top: 300, behavior: 'instant'})")
    browser.script("document.body.dataset.same = 'page'")

    scene.project.catchup("run", "refresh-dashboard")

    browser.until(lambda: "Manual" in browser.texts("tbody tr:first-child .cu-badge"), "the manual run")
    ticked = [one.get_attribute("value") for one in browser.all("input[name=run]:checked")]
    assert ticked == [chosen]
    assert browser.script("return [scrollY, document.body.dataset.same]") == [300, "page"]


def test_a_hidden_page_sends_no_requests(browser: Browser) -> None:
    browser.go("/catchup/runs")
    browser.script(
        "Object.defineProperty(document, 'hidden', {value: true, configurable: true});"
        "document.dispatchEvent(new Event('visibilitychange'))"
    )

    assert browser.text(".cu-live") == "Paused"
    browser.script("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
    browser.until_text("Live", ".cu-live")


def test_without_authentication_there_is_nothing_to_press(scene: Scene, site: Site, tmp_path: Path) -> None:
    with (
        flower(scene.project.app, basic_auth=[], headers={}) as open_site,
        chromium(f"http://127.0.0.1:{open_site.port}", user="", password="", folder=tmp_path) as browser,
    ):
        for path in (
            "/catchup",
            "/catchup/runs",
            f"/catchup/entry?entry={quote(EVIL, safe='')}",
            "/catchup/dead",
        ):
            browser.go(path)

            assert browser.all("button[data-path], input[type=checkbox], button[type=submit]") == []
            assert "--basic-auth" in browser.text("#cu-why-not")
