"""Every Lua file says what it is for, its keys, its arguments and its reply, and means it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import celery_catchup
from celery_catchup.store.store import all_scripts
from tests.simulation.oracle import WRITES, Oracle

PACKAGE = Path(celery_catchup.__file__).parent
FOLDER = PACKAGE / "store" / "lua"
FILES = sorted(path for path in PACKAGE.rglob("*.lua") if path.name != "library.lua")
LIBRARY = (FOLDER / "library.lua").read_text()
OPTIONAL = {"stopped"}
"""Keys that a library function uses if the script has them."""
UNREACHED = {"commit": {"dead", "version"}}
"""Keys that a library function uses in cases that a script does not have: a commit ends no run as dead."""


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_script_begins_with_what_it_is_for_and_tells_its_reply(path: Path) -> None:
    header = path.read_text().split("\n\n")[0].splitlines()
    comments = [line for line in header if line.startswith("--")]

    assert re.match(r"-- [A-Z].*[.:;,]?", comments[0])
    assert any(line.startswith(("-- KEYS ", "-- ARGV ")) for line in comments)
    assert any(line.startswith("-- RETURNS ") for line in comments)


def used_names(text: str, table: str) -> set[str]:
    """The names of ``keys`` or ``args`` that a script and the library functions it calls mention."""
    bodies = dict(re.findall(r"^local function (\w+)\((.*?)^end", LIBRARY, re.MULTILINE | re.DOTALL))
    code, seen = re.sub(r"--[^\n]*", "", text), set[str]()
    while called := {name for name in bodies if re.search(rf"\b{name}\(", code)} - seen:
        seen |= called
        code += "".join(re.sub(r"--[^\n]*", "", bodies[name]) for name in sorted(called))
    return set(re.findall(rf"\b{table}\.(\w+)", code))


@pytest.mark.parametrize("name", sorted(all_scripts()))
def test_a_script_lists_the_keys_and_arguments_that_it_uses(name: str) -> None:
    script, text = all_scripts()[name], (FOLDER / f"{name}.lua").read_text()
    code = re.sub(r"--[^\n]*", "", text)
    assigned = set(re.findall(r"\bkeys\.(\w+)(?=[\w., ]* = )", code))

    assert (
        used_names(text, "keys") - assigned - OPTIONAL - UNREACHED.get(name, set())
        == set(script.keys) - OPTIONAL
    )
    assert used_names(text, "args") == set(script.args)
    assert not re.search(r"\b(KEYS|ARGV)\[\d", code)


@pytest.mark.parametrize("name", sorted(all_scripts()))
def test_a_script_builds_no_key_by_itself(name: str) -> None:
    text = all_scripts()[name].text

    assert "{catchup" not in text
    assert not re.search(r"redis\.call\('\w+', *['\"]", text.replace("redis.call('SELECT'", ""))


BY_ITSELF = {
    "claim", "confirm_published", "lead", "mark_templates", "read_outbox", "record_standby", "record_worker",
    "rejoin", "renew", "retry", "scan_column", "settle_notice", "stage_entries", "survey", "write_note",
}  # fmt: skip
"""Scripts of beat and workers themselves without a fence, or that change nothing that is in force."""


@pytest.mark.parametrize("name", sorted(all_scripts()))
def test_a_script_is_the_leaders_or_a_workers_or_leaves_an_audit_record(name: str) -> None:
    script, text = all_scripts()[name], (FOLDER / f"{name}.lua").read_text()
    fenced = "leads()" in text

    assert "change" in script.args or fenced or name in BY_ITSELF
    assert ("change" in script.args) == ("record_change()" in text)


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
        script.positions({"owner": "me"})


def test_the_oracle_of_the_simulator_watches_scripts_that_exist() -> None:
    handlers = {name.removeprefix("_on_") for name in vars(Oracle) if name.startswith("_on_")}

    assert {*WRITES, *handlers - {"revoked"}} <= set(all_scripts())
