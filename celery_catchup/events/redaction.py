"""Redact secrets in errors and tracebacks before they are stored."""

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
    """Return the text with ``***`` for values named like a secret, and for passwords in URLs."""
    shorter = _HEADER.sub(rf"\1{_HIDDEN}", _PAIR.sub(rf"\1{_HIDDEN}", text))
    return "\n".join(masked(line) if "://" in line else line for line in shorter.split("\n"))
