"""The files of the project, for the tests that read them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "celery_catchup"

_NOT_OURS = {"_build", "build", "dist", "__pycache__", "appendonlydir"}


def modules() -> list[Path]:
    """The Python files of the package."""
    return sorted(PACKAGE.rglob("*.py"))


def name(path: Path) -> str:
    """A file as seen from the top of the project; for test ids and messages."""
    return path.relative_to(ROOT).as_posix()


@cache
def tree(path: Path) -> ast.Module:
    """The file, parsed."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def project_files(directory: Path = ROOT) -> Iterator[Path]:
    """Every file that somebody wrote: no environments, caches or built things."""
    for path in sorted(directory.iterdir()):
        if path.name in _NOT_OURS or (path.name.startswith(".") and path.name not in (".ci", ".gitignore")):
            continue
        if path.is_dir():
            yield from project_files(path)
        elif path.suffix != ".pyc":
            yield path
