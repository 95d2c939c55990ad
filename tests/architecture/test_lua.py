"""Every Lua file says what it is for, its keys, its arguments and its reply, and means it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import celery_catchup
from celery_catchup.store.scripts import MORE, all_scripts

PACKAGE = Path(celery_catchup.__file__).parent
FILES = sorted(path for path in PACKAGE.rglob("*.lua") if path.name != "library.lua")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_script_begins_with_what_it_is_for_and_tells_its_reply(path: Path) -> None:
    header = path.read_text().split("\n\n")[0].splitlines()
    comments = [line for line in header if line.startswith("--")]

    assert re.match(r"-- [A-Z].*[.:;,]?", comments[0])
    assert any(line.startswith(("-- KEYS ", "-- ARGV ")) for line in comments)
    assert any(line.startswith("-- RETURNS ") for line in comments)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_script_uses_the_keys_and_arguments_that_it_lists(path: Path) -> None:
    text = path.read_text()
    for what in ("KEYS", "ARGV"):
        listed = [
            name
            for line in re.findall(rf"^-- {what} ([\w.]+(?:, [\w.]+)*)", text, re.MULTILINE)
            for name in line.split(", ")
        ]
        used = {int(number) for number in re.findall(rf"\b{what}\[(\d+)\]", text)}
        fixed = len([name for name in listed if name != MORE])
        assert used <= set(range(1, fixed + 1)), f"{path.name} uses {what}{used}, lists {listed}"
        if MORE not in listed:
            assert used == set(range(1, fixed + 1)), f"{path.name} lists {listed}, uses {what}{used}"


@pytest.mark.parametrize("name", sorted(all_scripts()))
def test_a_script_builds_no_key_by_itself(name: str) -> None:
    text = all_scripts()[name].text

    assert "{catchup" not in text
    assert not re.search(r"redis\.call\('\w+', *['\"]", text.replace("redis.call('SELECT'", ""))


def test_no_python_code_puts_a_script_together_from_data() -> None:
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            built = isinstance(node, ast.JoinedStr) and any(
                isinstance(part, ast.Constant) and "redis.call" in str(part.value) for part in node.values
            )
            assert not built, f"{path}: a script made with an f-string"


def test_a_call_with_other_names_is_refused_before_anything_is_sent() -> None:
    script = all_scripts()["resign"]

    with pytest.raises(TypeError, match=r"resign.lua takes \('owner', 'epoch'\)"):
        script.positions({"owner": "me"}, script.args, ())
