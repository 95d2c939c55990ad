"""The way of a new user: README, an own project on RabbitMQ, an outage, a catch-up.

Commands and settings are the README's, word for word, except the addresses of servers, a schedule that
does not need an hour, and a queue of the test's own. The whole way, with a fresh virtual environment, is
a soak test and has to take less than five minutes; the suite plays it in its own environment.
"""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests import services
from tests.acceptance.messages import RabbitQueue
from tests.acceptance.processes import Started, until
from tests.acceptance.test_readme import README, clone
from tests.docs.test_blocks import blocks
from tests.results import Recorder

__all__ = ["clone"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
EVERY = 1  # seconds between two slots
MINUTES = 5
COMMANDS = [
    line.removeprefix("$ ")
    for block in blocks(README)
    if block.language == "console"
    for line in block.text.splitlines()
]
FILES = {
    "proj/__init__.py": """
        from celery import Celery

        app = Celery("proj", config_source="celeryconfig")
    """,
    "proj/tasks.py": """
        import json

        from celery_catchup import current_run
        from proj import app

        @app.task
        def etl():
            run = current_run()
            with open("runs", "a") as file:
                file.write(json.dumps([run.scheduled_time.timestamp(), run.is_catchup]) + "\\n")
    """,
}


class User:
    """Works in a folder with the programs of one environment; each command is typed into a shell."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.folder = folder
        inherited = {
            k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV", "CELERY"))
        }
        self.environ = {**inherited, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
        self.started: list[Started] = []

    def types(self, command: str, *, cwd: Path | None = None) -> str:
        """Run a command to its end, and confirm what it asks; return what it prints."""
        outer, inner = pty.openpty()
        os.write(outer, b"y\n")
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=cwd or self.folder,
            env=self.environ,
            stdin=inner,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=240,
            check=False,
        )
        os.close(outer)
        os.close(inner)
        assert done.returncode == 0, f"{command}\n{done.stdout}"
        return done.stdout

    def starts(self, command: str) -> Started:
        """Start a program that goes on."""
        log = self.folder / f"{len(self.started)}.log"
        words = ["bash", "-c", f"exec {command}"]
        self.started.append(Started(words, log=log, cwd=self.folder, environ=self.environ))
        return self.started[-1]

    def writes(self, settings: str) -> None:
        """Write the project and its settings."""
        for name, text in {**FILES, "celeryconfig.py": settings}.items():
            path = self.folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(re.sub(r"^ {8}", "", text, flags=re.MULTILINE).lstrip(), encoding="utf-8")

    def runs(self) -> list[tuple[float, bool]]:
        """Slot and lateness of every execution, in order."""
        file = self.folder / "runs"
        return [tuple(json.loads(line)) for line in file.read_text().splitlines()] if file.exists() else []

    def leaves(self) -> None:
        for process in self.started:
            process.end()


def settings(url: str, queue: str, *, schedule: str = str(EVERY)) -> str:
    """The README's settings, with the addresses, a quick schedule and a queue of this test."""
    (block,) = (block.text for block in blocks(README) if "beat_scheduler =" in block.text)
    for old, new in (
        ("amqp://guest@localhost//", services.RABBITMQ_URL),
        ("redis://localhost:6379/0", url),
        ("crontab(minute=0)", schedule),
        ('"overlap_policy": "all"}', '"overlap_policy": "all", "misfire_threshold": "1s"}'),
    ):
        assert old in block
        block = block.replace(old, new)
    return f"{block}\ntask_default_queue = {queue!r}\n"


def readme(beginning: str) -> str:
    """Return the README's command that begins so."""
    return next(command for command in COMMANDS if command.startswith(beginning))


@pytest.fixture
def user(tmp_path: Path) -> Iterator[User]:
    found = User(tmp_path, Path(sys.executable).parent)
    yield found
    found.leaves()


def play(user: User, url: str, queue: RabbitQueue) -> None:
    """From the settings to the caught-up runs."""
    user.writes(settings(url, queue.name))
    worker = user.starts("celery -A proj worker --loglevel INFO -c 2")
    beat = user.starts("celery -A proj beat")
    until(lambda: len(user.runs()) >= 2, what="two runs on time")
    assert "0 failures" in user.types("celery -A proj catchup doctor")

    beat.send(signal.SIGKILL)
    beat.wait()
    slots = len(user.runs())
    time.sleep(5 * EVERY)
    assert re.search(r"\d+ runs would be dispatched", user.types(readme("celery -A proj catchup preview")))
    again = user.starts("celery -A proj beat")
    again.until_it_says('msg="Catch-up completed"')
    until(lambda: sum(late for _, late in user.runs()) >= 3, what="late runs")
    until(lambda: [late for _, late in user.runs()[-2:]] == [False, False], what="runs on time again")

    runs = user.runs()
    assert not any(late for _, late in runs[:slots])
    assert {round(later - earlier, 1) for (earlier, _), (later, _) in pairwise(runs)} == {EVERY}
    assert "running" in user.types(readme("celery -A proj catchup status"))
    listed = user.types(readme("celery -A proj catchup runs"))
    assert re.search(r"hourly-etl +Catch-up .* succeeded", listed)
    assert "Traceback" not in worker.text() + again.text() + listed


def test_a_new_user_catches_up_an_outage_on_rabbitmq(
    user: User, redis_url: str, rabbit_queue: RabbitQueue
) -> None:
    play(user, redis_url, rabbit_queue)


@pytest.mark.soak
def test_a_new_user_needs_less_than_five_minutes(
    clone: Path, tmp_path: Path, redis_url: str, rabbit_queue: RabbitQueue, record_result: Recorder
) -> None:
    begun = time.monotonic()
    venv.create(tmp_path / "env", with_pip=True)
    user = User(tmp_path, tmp_path / "env" / "bin")
    try:
        user.types(readme("pip install"), cwd=clone)
        installed = time.monotonic()
        play(user, redis_url, rabbit_queue)
        user.writes(settings(redis_url, rabbit_queue.name, schedule="crontab(minute=0)"))
        user.types(readme("celery -A proj catchup backfill"))
        user.starts(readme("celery -A proj catchup flower")).until_it_says("Visit me at")
    finally:
        user.leaves()

    seconds = time.monotonic() - begun
    record_result(
        "a new user: README to catch-up on RabbitMQ",
        seconds_of_installing=round(installed - begun),
        seconds_of_all=round(seconds),
    )
    assert seconds < MINUTES * 60
