"""Discretion: where Celery shows settings, the URL of the store is hidden like a password.

``celery report``, ``celery inspect conf`` and what Flower makes of it mask the broker's URL,
and every setting with a word such as KEY or PASS in its name, but no URL of somebody else's.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

_OURS = "CATCHUP_REDIS_URL"


def mask_redis_url() -> None:
    """Add our setting to those that Celery hides, in this process.

    Celery has no way to ask for it, so its pattern is made longer; one that keeps it
    elsewhere is left alone.
    """
    utils: Any = import_module("celery.app.utils")
    hidden = getattr(utils, "HIDDEN_SETTINGS", None)
    if isinstance(hidden, re.Pattern) and not hidden.search(_OURS):
        utils.HIDDEN_SETTINGS = re.compile(f"{hidden.pattern}|{_OURS}", hidden.flags)
