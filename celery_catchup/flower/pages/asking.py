"""What an address asks for, as values; what cannot be meant is refused in a sentence."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import TypeVar

from celery_catchup.config.times import parse_time
from celery_catchup.error_text import did_you_mean, listed, shown
from celery_catchup.operations import Operator
from celery_catchup.operations.refusals import RefusedError

_Word = TypeVar("_Word", bound=StrEnum)


def moment(operator: Operator, name: str, text: str) -> datetime | None:
    """A time, or how long ago, such as ``6h``; in UTC unless it says otherwise."""
    if not text:
        return None
    try:
        return parse_time(text, now=operator.clock.now(), zone=UTC, since=True)
    except ValueError as error:
        raise RefusedError(f"{name}: {error}") from None


def word(kind: type[_Word], name: str, text: str) -> _Word:
    """One of the words of a kind."""
    known = [str(one) for one in kind]
    if text not in known:
        raise RefusedError(f"{name} is {shown(text)}; expected {listed(known)}{did_you_mean(text, known)}")
    return kind(text)
