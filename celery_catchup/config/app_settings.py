"""Read the ``catchup_*`` settings of a Celery app."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from celery_catchup.config.settings import PREFIX, Settings
from celery_catchup.error_text import nearest
from celery_catchup.errors import Mistake

_PREFIX = PREFIX.strip("_")
_NOT_A_LETTER = re.compile(r"[\W_]")
_KNOWN = {name.replace("_", ""): PREFIX + name for name in Settings.model_fields}
"""Each setting without underscores -> as it is written."""
_SIMILAR = 0.8
"""How similar a name must be to one of ours: other programs have settings, too."""


def read_settings(app: Any, *, only: Iterable[str] = ()) -> Settings:
    """Read the app's ``catchup_*`` settings; with ``only``, leave all others at their defaults."""
    raw = raw_settings(app)
    wanted = {PREFIX + name for name in only} or set(raw)
    return Settings.read({name: value for name, value in raw.items() if name in wanted})


def raw_settings(app: Any) -> dict[str, object]:
    """Return the values under ``catchup_*``, whatever namespace the app reads its settings under."""
    found: dict[str, object] = {}
    for key, prefix in _keys(app):
        if _is_read(key, prefix):
            found.setdefault(key.removeprefix(prefix).lower(), app.conf[key])
    return found


def misplaced_settings(app: Any) -> Iterator[Mistake]:
    """Yield settings of ours that Celery does not read, because of a wrong namespace or a typing error."""
    for key, prefix in _keys(app):
        bare = _NOT_A_LETTER.sub("", key.lower()).removeprefix("celery")
        # Letters may be in the wrong order; any other name belongs to another program.
        if sorted(bare[: len(_PREFIX)]) != sorted(_PREFIX) or _is_read(key, prefix):
            continue
        meant = nearest(bare[len(_PREFIX) :], _KNOWN, similar=_SIMILAR)
        if meant is not None:
            right = f"{prefix}{_KNOWN[meant].upper()}" if prefix else _KNOWN[meant]
            where = f"outside the app's namespace, {prefix.strip('_')}" if prefix else "without a namespace"
            other = not prefix and key.startswith("CELERY_")
            way = ", or give config_from_object namespace='CELERY'" if other else ""
            yield Mistake(key, f"is not read {where}; write {right}{way}")


def _keys(app: Any) -> list[tuple[str, str]]:
    """Return all names of settings, each with the prefix of the app's namespace."""
    keys = list(map(str, app.conf))  # loads the settings, which sets the prefix
    return [(key, app.conf.prefix or "") for key in keys]


def _is_read(key: str, prefix: str) -> bool:
    elsewhere = prefix and key.isupper() and not key.startswith(prefix)
    return not elsewhere and key.removeprefix(prefix).lower().startswith(PREFIX)
