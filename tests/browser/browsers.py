"""A headless Chromium that records its console and its requests."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException, TimeoutException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")
PATIENCE = 20  # seconds; a page takes a tenth of one, a busy machine makes it many
WIDE, NARROW = 1280, 390


def why_there_is_no_browser() -> str | None:
    """What is missing to start one; None when nothing is."""
    there = {"chromium": CHROMIUM, "chromedriver": DRIVER}
    missing = [name for name, path in there.items() if path is None]
    return f"{' and '.join(missing)} not on PATH" if missing else None


class Browser:
    """One window of a Chromium, on one Flower."""

    def __init__(self, driver: webdriver.Chrome, root: str) -> None:
        self.driver, self.root = driver, root
        self.requests: list[str] = []
        self.console: list[str] = []

    # -- going somewhere -------------------------------------------------------------------

    def go(self, path: str) -> None:
        """Open a page and wait until its script has run."""
        self.driver.get(self.root + path)
        self.until(lambda: self.all(".cu"), "the page")
        self.collect_logs()

    def set_window(self, *, width: int = WIDE, height: int = 900, theme: str = "light") -> None:
        """The size of the window, and what the reader's system prefers."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        features = [{"name": "prefers-color-scheme", "value": theme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    # -- looking ---------------------------------------------------------------------------

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector: str) -> WebElement:
        return self.until(lambda: self.all(selector), selector)[0]

    def text(self, selector: str = ".cu") -> str:
        return str(self.until(lambda: self.texts(selector), selector)[0])

    def texts(self, selector: str) -> list[str]:
        """In one step: elements that are asked one by one may be gone meanwhile."""
        code = "return [...document.querySelectorAll(arguments[0])].map(e => e.innerText ?? e.textContent)"
        return [" ".join(text.split()) for text in self.script(code, selector)]

    def named(self, selector: str, words: str) -> WebElement:
        """The element with these words, or this label."""

        def found() -> WebElement | None:
            fitting = (e for e in self.all(selector) if words in (e.text, e.get_attribute("aria-label")))
            return next(fitting, None)

        return self.until(found, f"{selector} {words!r}")

    def script(self, code: str, *given: Any) -> Any:
        return self.driver.execute_script(code, *given)

    def until(self, condition: Callable[[], Any], what: str) -> Any:
        """Wait for something true, and return it."""

        def look(_: Any) -> Any:
            try:
                return condition()
            except StaleElementReferenceException:  # the page was updated in the meantime
                return None

        return WebDriverWait(self.driver, PATIENCE, 0.05).until(look, what)

    def until_text(self, words: str, selector: str = ".cu") -> None:
        try:
            self.until(lambda: words in self.text(selector), f"{words!r} in {selector}")
        except TimeoutException as error:
            raise AssertionError(
                f"{words!r} is not in {self.texts(selector)}; {self.texts('.cu-says')}"
            ) from error

    # -- doing -----------------------------------------------------------------------------

    def press(self, words: str, selector: str = "button") -> None:
        """Click what has these words, or this label."""
        element = self.named(selector, words)
        self.until(element.is_enabled, f"{words!r} enabled")
        self.script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", element)
        element.click()

    def answer_dialog(self, words: str) -> str:
        """Press a button of the dialog; return its question."""
        question = self.text(".cu-dialog p")
        self.press(words, ".cu-dialog button")
        return question

    def write(self, selector: str, text: str) -> None:
        field = self.one(selector)
        field.send_keys(Keys.CONTROL, "a")
        field.send_keys(text)

    # -- console and requests --------------------------------------------------------------

    def collect_logs(self) -> None:
        """Collect the messages of the console and the requested URLs."""
        self.console += [entry["message"] for entry in self.driver.get_log("browser")]
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                self.requests.append(message["params"]["request"]["url"])

    def overflow(self) -> int:
        """Pixels by which the page is wider than the window."""
        return int(
            self.script("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
        )

    def screenshot(self, name: str) -> None:
        """Save a picture, where CATCHUP_SCREENSHOTS says so."""
        folder = os.environ.get("CATCHUP_SCREENSHOTS")
        if folder:
            # The entry with a script in its name is only for the tests.
            self.script("document.querySelectorAll('tr[data-key^=\"<\"]').forEach(row => row.remove())")
            self.driver.save_screenshot(str(Path(folder) / f"{name}.png"))


@contextmanager
def chromium(root: str, *, user: str, password: str, folder: Path) -> Iterator[Browser]:
    """Start one; it is signed in."""
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
        "--disable-background-networking",
        f"--user-data-dir={folder}",
        f"--window-size={WIDE},900",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
    try:
        browser = Browser(driver, root)
        browser.set_window()
        if user:
            # Once with the password in the address: the browser sends it along from then on.
            driver.get(root.replace("://", f"://{user}:{password}@") + "/catchup/static/catchup.css")
        yield browser
    finally:
        driver.quit()
