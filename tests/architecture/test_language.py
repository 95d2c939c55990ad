"""Keep banned words out of user-visible text: errors, log lines, CLI help, pages, docstrings, docs."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.architecture.sources import PACKAGE, ROOT, modules, name, tree

BANNED = re.compile(
    r"\b(?:mend(?:s|ed|ing)?|anew|nobody|somebody|(?:is|are|was|were|be) told|so many|by now|likewise|himself"
    r"|in the midst|worth a look|(?:is|are|works?) otherwise"
    r"|(?<!there )(?<!there’s )is no (?!longer|more))\b",
    re.IGNORECASE,
)
OPENINGS = re.compile(r"(?:What|Who|Whoever|Whatever)\b(?!.*\?)")
"""How a docstring must not begin: it begins with a verb, or says what something is; a question is fine."""

NOUNS = re.compile(r"(?:The|An?|Another|This|It)\b")
"""How the docstring of a function must not begin."""


def room(path: Path) -> str:
    """Return the sub-package or documentation folder that a file belongs to."""
    parts = Path(name(path)).parts
    return "/".join(parts[:2]) if len(parts) > 2 else "/".join(parts)


def python_texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield every text in a module, docstrings included."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield getattr(node, "lineno", 1), text.partition("\n\n")[0]


def shown_texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the texts of a module that a user can see; docstrings of commands have no hints."""
    nodes = list(ast.walk(tree(path)))
    silent = {node.value for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in silent:
            yield node.lineno, node.value


def lines(path: Path) -> Iterator[tuple[int, str]]:
    return enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)


@cache
def offences() -> dict[str, list[str]]:
    """Map each room to the banned words in its texts."""
    found: dict[str, list[str]] = defaultdict(list)
    documents = [*ROOT.glob("README.md"), *ROOT.glob("docs/**/*.md"), *PACKAGE.rglob("*.html")]
    texts = [(path, place, text) for path in modules() for place, text in python_texts(path)]
    texts += [(path, place, text) for path in documents for place, text in lines(path)]
    for path, place, text in texts:
        found[room(path)] += [
            f"{name(path)}:{place}: {match[0]!r}" for match in BANNED.finditer(" ".join(text.split()))
        ]
    for path in modules():
        for place, text in docstrings(path):
            if OPENINGS.match(text):
                found[room(path)].append(f"{name(path)}:{place}: a docstring begins with {text.split()[0]!r}")
    return found


def test_docstrings_of_functions_begin_with_a_verb() -> None:
    found = [
        f"{name(path)}:{node.lineno}: {text.partition(chr(10))[0]}"
        for path in modules()
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and not any("property" in ast.unparse(one) for one in node.decorator_list)
        and (text := ast.get_docstring(node))
        and NOUNS.match(text)
    ]

    assert found == []


def test_user_visible_text_has_no_banned_words() -> None:
    found = {place: words for place, words in offences().items() if words}

    assert found == {}


@pytest.mark.parametrize("text", ["Mend it.", "nobody has a run", "this is no window", "it works otherwise"])
def test_banned_words_are_found(text: str) -> None:
    assert BANNED.search(text)


@pytest.mark.parametrize("text", ["There is no such entry.", "it is no longer declared", "recommended"])
def test_plain_english_is_allowed(text: str) -> None:
    assert not BANNED.search(text)


def test_every_hint_is_built_by_command_lines() -> None:
    """A hint that is written by hand lacks the app, or quotes, and cannot be pasted."""
    written = re.compile(r"celery (?:catchup|-A|(?:beat|flower|inspect|worker) -) ?[a-zA-Z…]")

    assert [
        f"{name(path)}:{place}: {text!r}"
        for path in modules()
        for place, text in shown_texts(path)
        if written.search(text)
    ] == []
