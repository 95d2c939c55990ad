"""What no file of the project may contain, and what every module of the package must have."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import celery_catchup
from tests.architecture.sources import PACKAGE, ROOT, modules, name, project_files, tree

LINES = 450  # more than a screenful of screenfuls: time to split
LONG_FILES: set[str] = set()  # files of the package that may be longer, each with its reason

EXECUTES_DATA = {"pickle", "marshal", "shelve", "dill", "cloudpickle"}
EXECUTES_TEXT = {"eval", "exec", "__import__", "compile"}
SAYS_NOTHING = {"utils", "util", "common", "core", "helpers", "helper", "base", "misc"}

# Absolute paths of somebody's own machine.
A_MACHINE = re.compile(r"(?<![\w.~$}-])/(?:work|root|home/\w+|Users/\w+|tmp/wk)\b(?!\.)")

each_module = pytest.mark.parametrize("path", modules(), ids=name)


def dangers(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        match node:
            case ast.Import(names=names):
                imported = [alias.name for alias in names]
            case ast.ImportFrom(module=str(origin)):
                imported = [origin]
            case ast.Call(func=ast.Name(id=called)) if called in EXECUTES_TEXT:
                yield f"line {node.lineno}: {called}()"
                continue
            case _:
                continue
        yield from (f"line {node.lineno}: {word}" for word in imported if word.split(".")[0] in EXECUTES_DATA)


@each_module
def test_nothing_that_is_stored_or_sent_can_become_code(path: Path) -> None:
    assert list(dangers(tree(path))) == []


@pytest.mark.parametrize(
    "code",
    ["import pickle", "import os, marshal", "from shelve import open", "eval('1')", "__import__('os')"],
)
def test_such_code_would_be_found(code: str) -> None:
    assert list(dangers(ast.parse(code)))


def test_no_two_classes_have_the_same_name() -> None:
    found: dict[str, list[str]] = {}
    for path in modules():
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(name(path))

    assert {one: places for one, places in found.items() if len(places) > 1} == {}


@each_module
def test_every_module_says_what_it_is_for(path: Path) -> None:
    assert ast.get_docstring(tree(path)), "begin the file with a docstring"


@each_module
def test_no_module_has_a_name_that_says_nothing(path: Path) -> None:
    assert not SAYS_NOTHING & {path.stem, path.parent.name}


@each_module
def test_no_module_is_too_long_to_read(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())

    assert lines <= LINES or name(path) in LONG_FILES


def test_files_that_may_be_long_exist() -> None:
    assert {name(path) for path in modules()} >= LONG_FILES


def test_no_file_knows_the_machine_it_was_written_on() -> None:
    texts = {name(path): path.read_text(encoding="utf-8", errors="ignore") for path in project_files()}

    assert {file: found for file, text in texts.items() if (found := A_MACHINE.findall(text))} == {}


@pytest.mark.parametrize(
    "text", ["cd /{}/main", '"/{}/shared"', "(/{}/x)", "file:///{}/x"], ids=["command", "text", "link", "url"]
)
def test_such_a_path_would_be_found(text: str) -> None:
    assert A_MACHINE.search(text.format("work"))


def test_no_file_that_git_ignores_is_tracked() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    command = ["git", "ls-files", "--cached", "--ignored", "--exclude-standard"]
    tracked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout

    assert tracked == ""


def test_of_the_hidden_directories_only_those_of_ci_are_tracked() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout

    tops = {path.split("/")[0] for path in tracked.splitlines() if "/" in path}

    assert {top for top in tops if top.startswith(".")} == {".ci", ".github"}


def functions(path: Path) -> set[tuple[str, str]]:
    """The module and the name of each public function that a file defines and that nothing decorates."""
    return {
        (dotted(path), one.name)
        for one in tree(path).body
        if isinstance(one, ast.FunctionDef) and not one.name.startswith("_") and not one.decorator_list
    }


def mentions(path: Path) -> Iterator[tuple[str, str]]:
    """The functions that a file uses by their names, imports, or asks a module for."""
    module = tree(path)
    origins: dict[str, str] = {}
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                yield node.module, alias.name
                origins[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    for node in ast.walk(module):
        match node:
            case ast.Name(id=called, ctx=ast.Load()):
                yield dotted(path), called
            case ast.Attribute(value=ast.Name(id=owner), attr=called) if owner in origins:
                yield origins[owner], called


def mentions_of_templates() -> Iterator[tuple[str, str]]:
    """Yield the functions that Flower's templates call through a module that they are given."""
    modules_of_templates = {
        "markup": "celery_catchup.flower.markup",
        "elements": "celery_catchup.flower.pages.elements",
    }
    for path in PACKAGE.rglob("*.html"):
        for module, called in re.findall(r"\b(markup|elements)\.(\w+)", path.read_text(encoding="utf-8")):
            yield modules_of_templates[module], called


def dotted(path: Path) -> str:
    return name(path).removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def test_no_function_is_there_for_the_tests_alone() -> None:
    defined = {one for path in modules() for one in functions(path)}
    used = {one for path in modules() for one in mentions(path)} | set(mentions_of_templates())

    offered = {(home, public) for public, home in celery_catchup._HOMES.items()}
    assert sorted(defined - used - offered) == []
