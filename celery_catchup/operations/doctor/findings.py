"""The findings of the doctor's checks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias


class Verdict(StrEnum):
    """The result of a check; ``unknown`` when the check itself failed."""

    OK = "ok"
    WARNING = "warning"
    FAILURE = "failure"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of a check, and what to do about it."""

    check: str
    verdict: Verdict
    detail: str
    fix: str | None = None


@dataclass(frozen=True, slots=True)
class Examination:
    """All findings; healthy when no check is a failure or unknown."""

    healthy: bool
    findings: tuple[Finding, ...]


Results: TypeAlias = Iterator[tuple[Verdict, str, str | None]]
"""The verdict, the detail and the fix of each finding of a check."""


def ok(detail: str) -> tuple[Verdict, str, str | None]:
    """Report that all is well."""
    return Verdict.OK, detail, None


def warning(detail: str, fix: str) -> tuple[Verdict, str, str | None]:
    """Report something that works, but is risky or lost slots."""
    return Verdict.WARNING, detail, fix


def failure(detail: str, fix: str) -> tuple[Verdict, str, str | None]:
    """Report something that does not work."""
    return Verdict.FAILURE, detail, fix
