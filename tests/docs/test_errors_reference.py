"""What the page of errors quotes is what the code says, and every line of the log is on the page."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.sources import modules, tree

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


def messages(module: ast.Module) -> Iterator[str]:
    """Yield the words of each line that a module logs."""
    for call in (node for node in ast.walk(module) if isinstance(node, ast.Call)):
        match call:
            case (
                ast.Call(func=ast.Name(id="Line"), args=[_, ast.Constant(value), *_])
                | ast.Call(func=ast.Name(id="logfmt" | "RecurringProblem"), args=[ast.Constant(value), *_])
            ):
                yield value


LOGGED = sorted({str(message) for path in modules() for message in messages(tree(path))})


def test_there_are_messages() -> None:
    assert {"Redis cannot be used", "Run given up", "Heartbeat failed"} <= set(LOGGED)


@pytest.mark.parametrize("message", LOGGED)
def test_every_line_is_on_the_page(message: str) -> None:
    assert message in QUOTED, "say on docs/reference/errors.md what to do about it"
