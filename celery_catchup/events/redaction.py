"""Redaction: what looks like a secret does not get into records that people read."""

from __future__ import annotations

import re

from celery_catchup.error_text import masked

_HIDDEN = "***"
_WORDS = r"\w*(?:password|passwd|token|secret|cookie|api_?key)\w*"
_PAIR = re.compile(
    rf"""(?ix) ( ['"]? \b {_WORDS} \b ['"]? \s* [:=] \s* ) ( "[^"\n]*" | '[^'\n]*' | [^\s,;)\]}}]+ )"""
)
_HEADER = re.compile(r"(?i)(['\"]?\bauthorization\b['\"]?\s*[:=]\s*)([^\n,}\]]+)")


def redacted(text: str) -> str:
    """The text without the values of what is named like a secret, and without passwords of URLs."""
    shorter = _HEADER.sub(rf"\1{_HIDDEN}", _PAIR.sub(rf"\1{_HIDDEN}", text))
    return "\n".join(masked(line) if "://" in line else line for line in shorter.split("\n"))
