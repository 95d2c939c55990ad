"""The page about events lists what the code emits, and nothing else."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import celery_catchup
from celery_catchup import signals
from celery_catchup.events import CATALOGUE

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "reference" / "events.md"
SOURCES = [
    path for path in Path(celery_catchup.__file__).parent.rglob("*.py") if path.parent.name != "events"
]


def test_the_page_is_up_to_date() -> None:
    generated = runpy.run_path(str(DOCS / "generate.py"))["events_page"]()

    assert PAGE.read_text(encoding="utf-8") == generated, "run: python docs/generate.py"


def test_the_page_names_every_event_and_signal_and_no_other() -> None:
    named = set(re.findall(r"^\| `(\w+)`", PAGE.read_text(encoding="utf-8"), re.MULTILINE))

    assert named == {kind.__name__ for kind in CATALOGUE} | {one.name for one in signals.SIGNALS.values()}


def test_every_event_of_the_catalogue_happens_somewhere() -> None:
    texts = [path.read_text() for path in SOURCES if path.name not in ("logs.py", "signals.py")]

    for kind in CATALOGUE:
        assert any(re.search(rf"\b{kind.__name__}\(", text) for text in texts), kind
