"""Mask the store's URL and the receivers of notifications wherever Celery shows settings: ``celery report``,
``celery inspect conf``, Flower.

Celery masks the broker's URL and every setting with a word such as KEY or PASS in its name, but not the
URLs of extensions. Uses `celery.app.utils.HIDDEN_SETTINGS`, a private name; if it is not there, they
are not masked.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

_OURS = ("CATCHUP_REDIS_URL", "CATCHUP_NOTIFY")


def mask_settings() -> None:
    """Add our settings to the pattern of settings that Celery masks, in this process."""
    utils: Any = import_module("celery.app.utils")
    hidden = getattr(utils, "HIDDEN_SETTINGS", None)
    if isinstance(hidden, re.Pattern) and not all(map(hidden.search, _OURS)):
        utils.HIDDEN_SETTINGS = re.compile("|".join((hidden.pattern, *_OURS)), hidden.flags)
