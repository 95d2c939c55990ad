"""What the doctor says of one check."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """How a check went; ``unknown`` when it could not be made."""

    OK = "ok"
    WARNING = "warning"
    FAILURE = "failure"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Finding:
    """One check: what was found, and what to do about it."""

    check: str
    verdict: Verdict
    detail: str
    fix: str | None = None


@dataclass(frozen=True, slots=True)
class Examination:
    """All findings; healthy when every check could be made and none is a failure."""

    healthy: bool
    findings: tuple[Finding, ...]


def ok(check: str, detail: str) -> Finding:
    """All is well."""
    return Finding(check, Verdict.OK, detail)


def warning(check: str, detail: str, fix: str) -> Finding:
    """It works, but something is risky or was lost."""
    return Finding(check, Verdict.WARNING, detail, fix)


def failure(check: str, detail: str, fix: str) -> Finding:
    """It does not work as it is."""
    return Finding(check, Verdict.FAILURE, detail, fix)
