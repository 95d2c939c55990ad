"""Marks: where two messages of one entry differ, and how they are put in.

``store/rendering.py`` says what a mark looks like, and fills them.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from json.encoder import encode_basestring_ascii
from typing import Any

_SIGN = "@catchup"
_ESCAPED_SIGN = r"\u0040catchup"  # the same text to a JSON reader, and no mark

# What stands for the sign while a message is built. Nobody else's text contains it, so a user's
# argument that looks like a mark stays what it is.
_STAND_IN = f"catchup-{secrets.token_hex(16)}"


def mark(name: str) -> str:
    """A mark inside a string, for a message that `seal` will close."""
    return f"{_STAND_IN}:{name}@"


def value_mark(name: str) -> str:
    """A mark in place of a whole JSON value, for a message that `seal` will close."""
    return f"{_STAND_IN}!{name}@"


def with_marks(tree: Any, text: str, marked: str) -> Any:
    """The JSON value with ``text`` replaced in every string of it."""
    if isinstance(tree, str):
        return tree.replace(text, marked)
    if isinstance(tree, dict):
        return {key: with_marks(value, text, marked) for key, value in tree.items()}
    if isinstance(tree, list):
        return [with_marks(value, text, marked) for value in tree]
    return tree


def seal(message: Mapping[str, Any]) -> str:
    """The message as JSON text with real marks; what only looks like one is made harmless."""
    return sealed(message)


def sealed(value: Any) -> str:
    """Any part of a message, as `seal` writes it."""
    text = encode_basestring_ascii(value) if type(value) is str else json.dumps(value)
    return text.replace(_SIGN, _ESCAPED_SIGN).replace(_STAND_IN, _SIGN)
