"""The page about the commands says what the commands are, and every documented command is one."""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path

import click
import pytest

from celery_catchup.cli import catchup
from tests.docs.test_blocks import PAGES, ROOT, blocks

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "reference" / "cli.md"


def test_the_page_is_up_to_date() -> None:
    generated = runpy.run_path(str(DOCS / "generate.py"))["commands_page"]()

    assert PAGE.read_text(encoding="utf-8") == generated, "run: python docs/generate.py"


def test_every_verb_has_its_section() -> None:
    page = PAGE.read_text(encoding="utf-8")

    for name in catchup.list_commands(click.Context(catchup)):
        assert f"\n## `{name}`\n" in page


def documented() -> list[tuple[str, str]]:
    """Each ``celery … catchup …`` that a page shows."""
    found = []
    for page in PAGES:
        name = page.relative_to(ROOT).as_posix()
        for block in blocks(page.read_text(encoding="utf-8")):
            lines = block.text.splitlines() if block.language == "console" else []
            found += [(name, line[2:]) for line in lines if re.match(r"\$ celery .*\bcatchup ", line)]
    return found


@pytest.mark.parametrize(("page", "line"), documented(), ids=lambda text: text)
def test_a_documented_command_is_understood(page: str, line: str) -> None:
    words = shlex.split(line.partition(" | ")[0])
    words = words[words.index("catchup") + 1 :]
    command: click.Command = catchup

    context = command.make_context("catchup", words)
    while isinstance(command, click.Group):
        rest = [*context._protected_args, *context.args]
        _, found, rest = command.resolve_command(context, rest)
        assert found is not None, page
        command = found
        if "--help" in rest:
            return
        context = command.make_context(command.name, rest, parent=context)

    assert context.args == []
