"""The pages about settings and run states say what the code reads, and its examples are right."""

from __future__ import annotations

import runpy
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

from celery_catchup.config.configuration import Declaration, load
from tests.docs.test_blocks import blocks

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "reference" / "settings.md"


@pytest.mark.parametrize("page", ["settings", "run-states"])
def test_the_page_is_up_to_date(page: str) -> None:
    generated = runpy.run_path(str(DOCS / "generate.py"))[f"{page.replace('-', '_')}_page"]()

    written = (DOCS / "reference" / f"{page}.md").read_text(encoding="utf-8")
    assert written == generated, "run: python docs/generate.py"


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
