"""Categories of failures: can another attempt help?"""

from __future__ import annotations

import logging
from pkgutil import resolve_name

from kombu.exceptions import OperationalError
from redis.exceptions import ConnectionError as RedisConnectionError

from celery_catchup.config.settings import PREFIX, Settings
from celery_catchup.events.log_lines import logfmt

logger = logging.getLogger(__name__)

ERROR_SETTINGS = ("transient_errors", "permanent_errors")

_TRANSIENT = (ConnectionError, TimeoutError, InterruptedError, OperationalError, RedisConnectionError)
_PERMANENT = (TypeError, ValueError, LookupError, AttributeError, NotImplementedError, ImportError)


class Categories:
    """Classify exceptions as ``transient``, ``permanent`` or ``unknown``.

    The attribute ``catchup_category`` of an exception decides, then the settings (the class that is
    nearest to the exception's own), then the built-in lists.
    """

    def __init__(self, settings: Settings) -> None:
        self._configured: dict[type, str] = {}
        for setting in ERROR_SETTINGS:
            for named in getattr(settings, setting):
                found = _resolved(named, setting)
                if found is not None:
                    self._configured[found] = setting.removesuffix("_errors")

    def of(self, error: BaseException) -> str:
        """Return the category of an exception."""
        declared = getattr(error, "catchup_category", None)
        if declared in ("transient", "permanent", "unknown"):
            return str(declared)
        for kind in type(error).__mro__:
            if kind in self._configured:
                return self._configured[kind]
        if isinstance(error, _TRANSIENT):
            return "transient"
        return "permanent" if isinstance(error, _PERMANENT) else "unknown"


def _resolved(named: str | type[BaseException], setting: str) -> type[BaseException] | None:
    """Import the class; warn and return None when there is none of that name."""
    if isinstance(named, type):
        return named
    fields = {"setting": PREFIX + setting, "name": named}
    try:
        found = resolve_name(named if "." in named else f"builtins.{named}")
    except Exception:  # whatever happens while the user's module is imported
        logger.exception(logfmt("Configuration warning", **fields, problem="it cannot be imported"))
        return None
    if isinstance(found, type) and issubclass(found, BaseException):
        return found
    logger.warning(logfmt("Configuration warning", **fields, problem="it is not an exception class"))
    return None
