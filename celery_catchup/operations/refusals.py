"""What an operation refuses, as exceptions; each message can be shown as it is.

::

    CatchupError
    └── RefusedError              what was asked for cannot be done; nothing was changed
        ├── UnknownEntryError     no such entry, or one that this cannot be done with
        │   └── NoPolicyError     an entry without a catch-up policy, for which this needs one
        └── UnknownRunError       no such run or backfill, or several whose ids begin so
"""

from __future__ import annotations

from celery_catchup.errors import CatchupError


class RefusedError(CatchupError):
    """What was asked for cannot be done; nothing was changed."""


class UnknownEntryError(RefusedError):
    """There is no such entry, or it is one that this cannot be done with."""


class NoPolicyError(UnknownEntryError):
    """The entry is known, and has no catch-up policy, which this needs."""


class UnknownRunError(RefusedError):
    """There is no such run or backfill, or the beginning of an id fits several."""
