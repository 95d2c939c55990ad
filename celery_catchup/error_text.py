"""Format values, numbers and suggestions for messages: on one line, of a readable length, no passwords."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date, time, timedelta
from difflib import get_close_matches

LONGEST_QUOTE = 60
"""Characters of a value that a message repeats; enough to find it in a settings file."""

# Half of the letters in common is little, but a wrong suggestion does no harm.
_SIMILAR = 0.5
_SECRET_OPTIONS = re.compile(r"([?&][^=&?]{0,100}password=)[^&]*", re.IGNORECASE)


DIRECTION_CONTROLS = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Characters that change the direction of the text after them, so that it reads as something else."""


def with_visible_controls(text: str) -> str:
    """Show characters that change the direction of text as escapes."""
    return DIRECTION_CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def shown(value: object) -> str:
    """Format a value so that the user recognises it: quoted, on one line, cut if it is long."""
    if isinstance(value, str):
        return _cut(masked(value), quote=True)
    if isinstance(value, date | time | timedelta):
        return str(value)
    if isinstance(value, list | tuple | dict | set | frozenset):
        return _container(value)
    if value is None or isinstance(value, bool | int | float | bytes):
        return _cut(_repr(value))
    return f"{_article(type(value).__name__)} object"


def masked(text: str) -> str:
    """Replace the credentials of any URL in the text by ``***``."""
    # Everything up to the last @: an unencoded password may contain one.
    start, end = text.find("://"), text.rfind("@")
    hidden = f"{text[: start + 3]}***{text[end:]}" if 0 <= start < end else text
    return _SECRET_OPTIONS.sub(r"\1***", hidden)


def describe_error(error: BaseException, *, longest: int = 120) -> str:
    """Describe an exception from other code: its class and message, in one printable line."""
    text = " ".join(str(error).split())
    printable = "".join(char if char.isprintable() else "?" for char in text)
    return f"{type(error).__name__}: {masked(printable[:longest])}"


def nearest(word: str, known: Iterable[str], *, similar: float = _SIMILAR) -> str | None:
    """Return the known word that is most similar, or None."""
    by_folded = {candidate.casefold(): candidate for candidate in known}
    # The cost is the product of the lengths, and no known word is that long.
    folded = word[: 4 * LONGEST_QUOTE].casefold()
    found = get_close_matches(folded, by_folded, n=1, cutoff=similar)
    return by_folded[found[0]] if found else None


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """Return ``; did you mean 'window'?``, or nothing if no known word is similar."""
    found = nearest(word, known) if isinstance(word, str) else None
    return f"; did you mean {shown(found)}?" if found else ""


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Return ``1 run``, ``3 runs``, ``1,440 entries``."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def shortened(text: str, longest: int) -> str:
    """Cut a text that is longer, and mark the place."""
    return text if len(text) <= longest else f"{text[:longest]}…"


def listed(words: Iterable[str]) -> str:
    """Return ``all, latest or false``."""
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last


def path(where: str, key: object) -> str:
    """Return ``where.key``; a key that does not fit on one line is quoted and cut."""
    name = key if isinstance(key, str) and _reads_well(key) else shown(key)
    return f"{where}.{name}" if where else name


def _reads_well(name: str) -> bool:
    return name.isprintable() and name == name.strip() and 0 < len(name) <= LONGEST_QUOTE


def _cut(text: str, *, quote: bool = False) -> str:
    end = "…" if len(text) > LONGEST_QUOTE else ""
    head = text[:LONGEST_QUOTE]
    return f"{head!r}{end}" if quote else f"{head}{end}"


def _repr(value: object) -> str:
    try:
        return repr(value)
    except ValueError:  # Python refuses to write an int of thousands of digits
        return f"{_article(type(value).__name__)} too long to write"


def _container(
    value: list[object] | tuple[object, ...] | dict[object, object] | set[object] | frozenset[object],
) -> str:
    """Repeat a short container; describe a nested one by its type and length."""
    parts = [*value, *value.values()] if isinstance(value, dict) else list(value)
    if len(parts) <= LONGEST_QUOTE and all(isinstance(p, str | int | float | None) for p in parts):
        return _cut(masked(_repr(value)))
    return f"{_article(type(value).__name__)} of {len(value)}"


def _article(noun: str) -> str:
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun[:LONGEST_QUOTE]}"
