"""Texts from outside are handled in a time that grows with their length, not faster."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from celery_catchup.config.settings import Settings
from celery_catchup.error_text import describe_error, masked, shown
from celery_catchup.events.log_lines import logfmt
from celery_catchup.events.redaction import redacted
from celery_catchup.worker_plugin.failure_categories import Categories
from celery_catchup.worker_plugin.reports import dead_letter_of, error_line

LENGTH = 1_000_000
LONGEST = 3.0
"""Seconds of processor time for a million characters; what is quadratic takes hours."""
PIECES = [
    "password", "password=", "password='", 'token="', "a='", "://", "://@", "?", "?password=", "&", "-",
    "--a ", "bearer ", "\\", "'", '"', " ", "\n", "x", "=", ": ", "\ud800", "authorization:",
]  # fmt: skip


def letter(text: str) -> str:
    try:
        raise ValueError(text)
    except ValueError as error:
        return dead_letter_of(error, Categories(Settings()))


HANDLERS: dict[str, Callable[[str], object]] = {
    "redacted": redacted,
    "masked": masked,
    "shown": shown,
    "describe_error": lambda text: describe_error(ValueError(text)),
    "error_line": lambda text: error_line(ValueError(text)),
    "dead_letter_of": letter,
    "logfmt": lambda text: logfmt("A line", value=text),
}


@pytest.mark.parametrize("piece", PIECES, ids=repr)
@pytest.mark.parametrize("handler", HANDLERS)
def test_a_million_characters_take_a_bounded_time(handler: str, piece: str) -> None:
    text = (piece * (LENGTH // len(piece) + 1))[:LENGTH]

    begun = time.process_time()
    HANDLERS[handler](text)

    assert time.process_time() - begun < LONGEST
