"""Put placeholders into a message; `celery_catchup.store.templates` reads them."""

from __future__ import annotations

import json
import secrets
from json.encoder import encode_basestring_ascii
from typing import Any

_SIGN = "@catchup"
_ESCAPED_SIGN = r"\u0040catchup"  # the same text to a JSON reader, and no placeholder

# Stands for the sign while a message is built. It occurs in nothing else, so a user's argument that
# looks like a placeholder stays what it is.
_STAND_IN = f"placeholder-{secrets.token_hex(16)}"


def placeholder(name: str) -> str:
    """Make a placeholder inside a string, for a message that `to_json` encodes."""
    return f"{_STAND_IN}:{name}@"


def value_placeholder(name: str) -> str:
    """Make a placeholder for a whole JSON value, for a message that `to_json` encodes."""
    return f"{_STAND_IN}!{name}@"


def replace_text(tree: Any, text: str, replacement: str) -> Any:
    """Replace ``text`` in every string of a JSON value."""
    if isinstance(tree, str):
        return tree.replace(text, replacement)
    if isinstance(tree, dict):
        return {key: replace_text(value, text, replacement) for key, value in tree.items()}
    if isinstance(tree, list):
        return [replace_text(value, text, replacement) for value in tree]
    return tree


def split_after_placeholders(text: str) -> tuple[str, str]:
    """Split a string after its last placeholder."""
    start = text.rfind(_STAND_IN)
    end = 0 if start < 0 else text.index("@", start) + 1
    return text[:end], text[end:]


def inside_json(text: str) -> str:
    """Encode a text without placeholders for the inside of a JSON string, as `to_json` does."""
    return encode_basestring_ascii(text)[1:-1].replace(_SIGN, _ESCAPED_SIGN)


def to_json(value: Any) -> str:
    """Encode with real placeholders; escape text of the user's that only looks like one."""
    return json.dumps(value).replace(_SIGN, _ESCAPED_SIGN).replace(_STAND_IN, _SIGN)
