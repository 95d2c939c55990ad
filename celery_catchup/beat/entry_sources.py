"""Choose where the entries of the beat schedule come from, and whether they change while beat runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from celery_catchup.config.mistakes import config_error
from celery_catchup.config.settings import PREFIX, Source
from celery_catchup.model import Instant


class EntrySource:
    """A source of entries; this one has none, and they never change."""

    def __init__(self, app: Any) -> None:
        self._app = app

    def entries(self) -> Mapping[str, Any]:
        """Read the entries by name, each as ``beat_schedule`` has it or built already."""
        return {}

    def has_changed(self) -> bool:
        """Return whether `entries` would give others than the last time; called often, so cheap."""
        return False

    def record_sent(self, name: str, at: Instant) -> None:
        """Record that a run of the entry was sent, where the source shows it; written soon."""

    def flush(self) -> None:
        """Write what was recorded."""

    def disable_expired(self, now: Instant, decided: Callable[[str], bool]) -> None:
        """Disable entries that have ended, once ``decided`` says so of all their slots; called often."""


class SettingsSource(EntrySource):
    """Reads ``beat_schedule`` from the settings."""

    def entries(self) -> Mapping[str, Any]:
        """Read the settings."""
        found: Mapping[str, Any] = self._app.conf.beat_schedule
        return found


def open_source(app: Any, chosen: Source) -> EntrySource:
    """Open the source that ``catchup_source`` names; `ConfigurationError` when it cannot be used."""
    if chosen is Source.SETTINGS:
        return SettingsSource(app)
    try:
        # By name: its imports exist only in a Django project.
        source: EntrySource = import_module("celery_catchup.beat.django_source").DjangoSource(app)
    except Exception as error:
        raise config_error(
            f"{PREFIX}source",
            f"'django' needs django-celery-beat in a Django project that is set up: {error}; "
            "pip install django-celery-beat, and add it to INSTALLED_APPS",
        ) from error
    return source
