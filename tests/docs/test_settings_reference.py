"""The page about settings says what the code reads, and its examples are right."""

from __future__ import annotations

import runpy
from datetime import UTC
from pathlib import Path
from typing import Any

from celery_catchup.config.configuration import Declaration, load
from tests.docs.test_blocks import blocks

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "reference" / "settings.md"


def test_the_page_is_up_to_date() -> None:
    generated = runpy.run_path(str(DOCS / "generate.py"))["settings_page"]()

    assert PAGE.read_text(encoding="utf-8") == generated, "run: python docs/generate.py"


def test_every_example_on_the_page_is_a_configuration_without_mistakes() -> None:
    page: dict[str, Any] = {}
    examples = [
        block.text for block in blocks(PAGE.read_text(encoding="utf-8")) if block.language == "python"
    ]
    for example in examples:
        exec(example, page)
        raw = {name: value for name, value in page.items() if name.startswith("catchup_")}
        declared = {name: Declaration(entry["schedule"]) for name, entry in page["beat_schedule"].items()}

        assert any(load(raw, declared=declared, timezone=UTC).policies.values())

    assert len(examples) >= 7
