"""The exceptions of operations; each message can be shown to the user.

::

    CatchupError
    └── RefusedError              the request cannot be fulfilled; nothing was changed
        ├── UnknownEntryError     the entry does not exist, or does not allow this operation
        │   └── NoPolicyError     the operation needs a catch-up policy, and the entry has none
        ├── UnknownRunError       the run or backfill does not exist
        │   └── AmbiguousIdError  several ids begin so
        ├── RangeError            the range of time is impossible, or too long
        └── KeyReusedError        the idempotency key belongs to another request
"""

from __future__ import annotations

from collections.abc import Sequence

from celery_catchup.error_text import shown
from celery_catchup.errors import CatchupError
from celery_catchup.events.command_lines import command_line


class RefusedError(CatchupError):
    """The request cannot be fulfilled; nothing was changed."""


class UnknownEntryError(RefusedError):
    """The entry does not exist, or does not allow this operation."""


class NoPolicyError(UnknownEntryError):
    """The operation needs a catch-up policy, and the entry has none."""


class UnknownRunError(RefusedError):
    """The run or backfill does not exist."""


class AmbiguousIdError(UnknownRunError):
    """Several ids of runs or backfills begin so."""


class RangeError(RefusedError):
    """The range of time is impossible, or too long."""


class KeyReusedError(RefusedError):
    """The idempotency key belongs to another request."""


def check_unique(beginning: str, ids: Sequence[str], *, what: str, command: str) -> None:
    """Raise `UnknownRunError` or `AmbiguousIdError` unless exactly one id begins so; ``command`` lists the
    ids."""
    if not ids:
        there = command_line(*command.split())
        raise UnknownRunError(f"no such {what}: {shown(beginning)}; list them with: {there}")
    if len(ids) > 1:
        some = ", ".join(ids[:3])
        raise AmbiguousIdError(
            f"{shown(beginning)} is the beginning of several {what}s: {some}; give more of it"
        )
