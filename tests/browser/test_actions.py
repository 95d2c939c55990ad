"""The actions of the pages in a real browser, with a running beat and worker."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

from tests.browser.browsers import Browser, chromium
from tests.browser.scenes import BROKEN, EVIL, LONG, Scene
from tests.integration.flowers import Site, flower

DAY = timedelta(days=1)


def stamp(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%MZ}"


def test_an_entry_is_paused_and_resumed(browser: Browser, scene: Scene) -> None:
    browser.go("/catchup")

    browser.press("Pause hourly-etl")
    browser.until_text("“hourly-etl” is paused", ".cu-says")
    browser.until(lambda: "paused" in browser.texts("tr[data-key=hourly-etl] .cu-badge"), "the badge")
    assert "hourly-etl" in scene.project.json("status")["paused"]

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


def test_a_backfill_is_previewed_dispatched_and_seen_to_its_end(browser: Browser, scene: Scene) -> None:
    end = scene.now - 12 * DAY
    browser.go(f"/catchup/entry?entry={LONG}#backfill")
    browser.write("input[name=start]", stamp(end - DAY))
    browser.write("input[name=end]", stamp(end))

    browser.until_text("Dispatch 8 runs", ".cu-form button[type=submit]")
    assert browser.texts("[data-count]") == ["8", "8", "8"]
    assert "8 runs would be dispatched." in browser.text("[data-preview]")
    command = browser.text("[data-command]")
    assert command == (
        f"celery -A proj catchup backfill {LONG} --start {stamp(end - DAY)} --end {stamp(end)}"
    )
    browser.script("document.querySelector('#backfill').scrollIntoView({behavior: 'instant'})")
    browser.screenshot("backfill")
    browser.press("Dispatch 8 runs", ".cu-form button[type=submit]")
    assert "Dispatch 8 runs of" in browser.answer_dialog("Dispatch 8 runs")
    browser.until_text("was created", ".cu-says")

    browser.go("/catchup/backfills")
    browser.until_text("completed", "#cu-rows tbody tr:first-child")
    assert "8 of 8: 8 dispatched, 0 skipped" in browser.text("#cu-rows tbody tr:first-child")
    browser.go(f"/catchup/runs?triggerType=backfill&entry={LONG}")
    browser.until(lambda: browser.texts("td[data-label=State]") == ["Succeeded"] * 8, "eight runs")


def test_what_cannot_be_backfilled_is_a_sentence_in_its_place(browser: Browser, scene: Scene) -> None:
    browser.go("/catchup/entry?entry=hourly-etl")

    browser.write("input[name=start]", stamp(datetime.now(UTC) + DAY))
    browser.write("input[name=end]", stamp(datetime.now(UTC) + 2 * DAY))
    browser.until_text("future", "[data-preview]")
    browser.write("input[name=end]", "whenever")
    browser.until_text("end: expected a time", "[data-preview]")

    assert not browser.one(".cu-form button[type=submit]").is_enabled()
    browser.collect_logs()
    # Chromium itself writes refused requests to the console.
    browser.console = [line for line in browser.console if "/backfill/preview" not in line]


def test_a_backfill_is_paused_resumed_and_cancelled(browser: Browser, scene: Scene) -> None:
    start, end = scene.now - 30 * DAY, scene.now - 19 * DAY
    scene.project.catchup(
        "backfill", "sync-crm", "--start", start.isoformat(), "--end", end.isoformat(), "-f"
    )
    scene.project.catchup("backfill", "pause", scene.project.json("backfill", "list")["backfills"][0]["id"])
    browser.go("/catchup/backfills")
    row = "#cu-rows tbody tr:first-child"
    name = browser.text(f"{row} td:first-child")

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
