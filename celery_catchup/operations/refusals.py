"""The exceptions of operations; each message can be shown to the user.

::

    CatchupError
    └── RefusedError              what was asked for cannot be done; nothing was changed
        ├── UnknownEntryError     no such entry, or one that this cannot be done with
        │   └── NoPolicyError     an entry without a catch-up policy, for which this needs one
        └── UnknownRunError       no such run or backfill, or several whose ids begin so
"""

from __future__ import annotations

from collections.abc import Sequence

from celery_catchup.error_text import shown
from celery_catchup.errors import CatchupError


class RefusedError(CatchupError):
    """What was asked for cannot be done; nothing was changed."""


class UnknownEntryError(RefusedError):
    """There is no such entry, or it is one that this cannot be done with."""


class NoPolicyError(UnknownEntryError):
    """The entry is known, and has no catch-up policy, which this needs."""


class UnknownRunError(RefusedError):
    """There is no such run or backfill, or the beginning of an id fits several."""


def check_unique(beginning: str, ids: Sequence[str], *, what: str, command: str) -> None:
    """Raise `UnknownRunError` unless exactly one id begins so; ``command`` lists the ids."""
    if not ids:
        raise UnknownRunError(f"no such {what}: {shown(beginning)}; list them with: celery catchup {command}")
    if len(ids) > 1:
        some = ", ".join(ids[:3])
        raise UnknownRunError(
            f"{shown(beginning)} is the beginning of several {what}s: {some}; give more of it"
        )
