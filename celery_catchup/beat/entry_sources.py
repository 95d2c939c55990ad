"""Sources: where the entries of the beat schedule come from, and whether they change under way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Protocol

from celery_catchup.config.mistakes import config_error
from celery_catchup.config.settings import PREFIX, Source
from celery_catchup.model import Instant


class EntrySource(Protocol):
    """What beat and commands need of a source."""

    def entries(self) -> Mapping[str, Any]:
        """The entries by name, each as ``beat_schedule`` has it or made already."""

    def has_changed(self) -> bool:
        """Whether `entries` would give something else than the last time; asked often, so cheap."""

    def sent(self, name: str, at: Instant) -> None:
        """A run of the entry was sent; told on to whoever shows it, soon."""

    def flush(self) -> None:
        """Tell on what was sent, however soon it is."""

    def retire(self, now: Instant, decided: Callable[[str], bool]) -> None:
        """Let go of entries that have ended; ``decided`` says whether all slots of one are. Asked often."""


class SettingsSource:
    """``beat_schedule`` itself; it is read once."""

    def __init__(self, app: Any) -> None:
        self._app = app

    def entries(self) -> Mapping[str, Any]:
        """What stands in the settings."""
        found: Mapping[str, Any] = self._app.conf.beat_schedule
        return found

    def has_changed(self) -> bool:
        """Settings stay as they are."""
        return False

    def sent(self, name: str, at: Instant) -> None:
        """Nobody else wants to know."""

    def flush(self) -> None:
        """Nothing is kept back."""

    def retire(self, now: Instant, decided: Callable[[str], bool]) -> None:
        """Settings stay as they are."""


def open_source(app: Any, chosen: Source) -> EntrySource:
    """The source that ``catchup_source`` names; `ConfigurationError` when it cannot be had."""
    if chosen is Source.SETTINGS:
        return SettingsSource(app)
    try:
        # By its name: what it imports is there only in a Django project.
        source: EntrySource = import_module("celery_catchup.beat.django_source").DjangoSource(app)
    except Exception as error:
        raise config_error(
            f"{PREFIX}source",
            f"'django' needs django-celery-beat in a Django project that is set up: {error}; "
            "pip install django-celery-beat, and add it to INSTALLED_APPS",
        ) from error
    return source
