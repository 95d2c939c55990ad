"""Redact secrets: in errors and tracebacks before they are stored, in notes of tasks before they are shown.

Every pattern is bounded, so that the time grows with the length of the text and not faster: a task may raise
an error of any size.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from celery_catchup.error_text import masked

_HIDDEN = "***"
_DEEPEST = 30
"""Levels of a value that are shown; one that is deeper is for programs."""
_SECRET_PARTS = (
    "password", "passwd", "passphrase", "passcode", "token", "secret", "cookie", "apikey", "privatekey",
    "accesskey", "credential", "authorization", "sessionid", "signature",
)  # fmt: skip
"""A name with one of these in it, without dashes and underscores, has a secret value."""
_SECRET_NAMES = {"pwd", "pass", "auth", "sig", "jwt"}
"""The same for a whole name, or its last word."""

_NAMED = re.compile(
    r"(?<![\w-])(?:--)?(?P<name>[A-Za-z_][\w-]{0,79})(?:['\"]?[ \t]{0,8}[:=][ \t]{0,8}|(?<=[\w-])[ \t]{1,8})"
)
"""A name before a value: ``name=``, ``'name':``, or ``--name`` and a blank."""
_VALUE = re.compile(
    r"""(?ix) "(?:[^"\\\n]|\\.){0,2000}" | '(?:[^'\\\n]|\\.){0,2000}'
    | (?:bearer|basic) [ \t]{1,4} [^\s,;)\]}]{1,4000} | [^\s,;)\]}&]{1,4000}"""
)
_BEARER = re.compile(r"(?i)(\b(?:bearer|basic)[ \t]{1,4})[\w.~+/=-]{6,4000}")


def redacted(text: str) -> str:
    """Return the text with ``***`` for values named like a secret, and for passwords in URLs."""
    text = _BEARER.sub(rf"\1{_HIDDEN}", _without_named_values(text))
    return "\n".join(masked(line) if "://" in line else line for line in text.split("\n"))


def redacted_value(value: Any, *, name: str = "", depth: int = 0) -> Any:
    """Return a value of JSON with ``***`` for what is named like a secret, and for secrets in texts."""
    if (is_secret(name) and value is not None and not isinstance(value, bool)) or depth > _DEEPEST:
        return _HIDDEN
    if isinstance(value, str):
        return redacted(value)
    if isinstance(value, Mapping):
        return {key: redacted_value(one, name=str(key), depth=depth + 1) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [redacted_value(one, depth=depth + 1) for one in value]
    return value


def _without_named_values(text: str) -> str:
    parts, done = list[str](), 0
    for named in _NAMED.finditer(text):
        is_pair = named[0].startswith("--") or named[0].rstrip(" \t")[-1] in ":="
        if named.start() >= done and is_pair and is_secret(named["name"]):
            value = _VALUE.match(text, named.end())
            if value is not None:
                parts += [text[done : named.end()], _HIDDEN]
                done = value.end()
    return "".join((*parts, text[done:]))


def is_secret(name: str) -> bool:
    """Tell whether a value with this name should not be shown."""
    words = name.casefold().replace("-", "_").split("_")
    joined = "".join(words)
    return words[-1] in _SECRET_NAMES or any(part in joined for part in _SECRET_PARTS)
