"""The exceptions of operations; each message can be shown to the user.

::

    CatchupError
    └── RefusedError              the request cannot be fulfilled; nothing was changed
        ├── UnknownEntryError     the entry does not exist, or does not allow this operation
        │   └── NoPolicyError     the operation needs a catch-up policy, and the entry has none
        └── UnknownRunError       the run or backfill does not exist, or several ids begin so
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
    """The run or backfill does not exist, or several ids begin so."""


def check_unique(beginning: str, ids: Sequence[str], *, what: str, command: str) -> None:
    """Raise `UnknownRunError` unless exactly one id begins so; ``command`` lists the ids."""
    if not ids:
        there = command_line(*command.split())
        raise UnknownRunError(f"no such {what}: {shown(beginning)}; list them with: {there}")
    if len(ids) > 1:
        some = ", ".join(ids[:3])
        raise UnknownRunError(
            f"{shown(beginning)} is the beginning of several {what}s: {some}; give more of it"
        )
