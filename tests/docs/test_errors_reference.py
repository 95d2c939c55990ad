"""What the page of errors quotes is what the code says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "errors.md"
ROWS = re.findall(r"^\| (`.*?) \| ", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
QUOTED = [words for row in ROWS for words in re.findall(r"`([^`]+)`", row)]


@pytest.fixture(scope="module")
def code() -> str:
    """All that the package says, with strings that were broken for their length put together."""
    files = [path for kind in ("*.py", "*.lua") for path in (ROOT / "celery_catchup").rglob(kind)]
    text = "\n".join(path.read_text(encoding="utf-8") for path in files)
    return re.sub(r'"\s*\n\s*f?"', "", text)


def test_there_are_rows() -> None:
    assert len(QUOTED) > 40


@pytest.mark.parametrize("words", QUOTED)
def test_the_code_says_so(words: str, code: str) -> None:
    assert words in code
