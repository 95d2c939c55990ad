"""What the documentation shows is true: its Python runs, its commands are ones we have."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    [*ROOT.glob("*.md"), *(page for page in (ROOT / "docs").rglob("*.md") if "_build" not in page.parts)]
)
COMMANDS = set("cd celery curl flower git kubectl make pip pkill pytest python python3 redis-cli".split())

FENCE = re.compile(
    r"^(?P<indent> *)(?P<fence>`{3,}|~{3,}|:{3,})(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=indent)(?P=fence) *$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page: what is written after the fence, where its text begins, its text."""

    language: str
    marks: frozenset[str]
    line: int
    text: str


def blocks(page: str) -> list[Block]:
    found = []
    for match in FENCE.finditer(page):
        language, *marks = match["info"].split() or [""]
        text = re.sub(rf"^{match['indent']}", "", match["body"], flags=re.MULTILINE)
        found.append(Block(language, frozenset(marks), page.count("\n", 0, match.start("body")) + 1, text))
    return found


def run_python(page: str, filename: str) -> None:
    """Execute the page's Python in order, in one namespace, with the page's own line numbers."""
    namespace: dict[str, object] = {"__name__": "__page__"}
    for block in blocks(page):
        if block.language == "python":
            code = compile("\n" * (block.line - 1) + block.text, filename, "exec")
            if "no-run" not in block.marks:
                exec(code, namespace)


def unknown_commands(page: str) -> list[str]:
    lines = [
        line for block in blocks(page) if block.language == "console" for line in block.text.splitlines()
    ]
    return [line for line in lines if line.startswith("$ ") and (line[2:].split() or [""])[0] not in COMMANDS]


each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())


@each_page
def test_the_python_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    run_python(page.read_text(encoding="utf-8"), str(page))


@each_page
def test_the_commands_of_a_page_are_known(page: Path) -> None:
    assert unknown_commands(page.read_text(encoding="utf-8")) == []


def test_blocks_of_one_page_share_their_names() -> None:
    run_python("```python\nslot = 10\n```\n\ntext\n\n```python\nassert slot == 10\n```\n", "page.md")


def test_a_block_marked_no_run_is_only_compiled() -> None:
    run_python("```python no-run\nraise SystemExit\n```\n", "page.md")

    with pytest.raises(SyntaxError):
        run_python("```python no-run\ndef\n```\n", "page.md")


def test_an_error_names_the_line_of_the_page() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        run_python("# Title\n\n```python\nfine = 1\n1 / 0\n```\n", "page.md")

    assert caught.traceback[-1].lineno == 4  # counted from 0


def test_a_block_in_a_list_is_found_too() -> None:
    page = "1. First:\n\n   ```python\n   for slot in []:\n       pass\n   ```\n"

    assert [block.text for block in blocks(page)] == ["for slot in []:\n    pass\n"]


def test_a_fence_inside_a_longer_fence_is_text() -> None:
    page = "````text\n```python\nraise SystemExit\n```\n````\n"

    assert [block.language for block in blocks(page)] == ["text"]


def test_a_command_nobody_knows_is_found() -> None:
    page = "```console\n$ celry -A proj beat\noutput\n$ celery -A proj beat\n```\n"

    assert unknown_commands(page) == ["$ celry -A proj beat"]
