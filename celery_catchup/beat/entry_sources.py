"""Choose where the entries of the beat schedule come from, and whether they change while beat runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any, Protocol

from celery.beat import ScheduleEntry

from celery_catchup.beat.catchup_entry import declaration_of
from celery_catchup.beat.for_each import Declares, Expanded, Found, expand, find_for_each
from celery_catchup.config.app_settings import raw_settings
from celery_catchup.config.configuration import ENTRIES, UNSET, Declaration, EntryTemplate
from celery_catchup.config.mistakes import config_error
from celery_catchup.config.settings import PREFIX, Source
from celery_catchup.model import Instant


class EntrySource:
    """A source of entries; this one has none, and they never change."""

    strict = False
    """Whether one wrong entry keeps beat from starting; a wrong row of a database fails alone."""

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

    strict = True

    def entries(self) -> Mapping[str, Any]:
        """Read the settings."""
        found: Mapping[str, Any] = self._app.conf.beat_schedule
        return found


class ValueSource(Protocol):
    """The values that functions of ``for_each`` return, by declaration and argument."""

    def first(self, declares: Mapping[str, Declares]) -> Found:
        """Return the values that are known."""

    def changed(self, declares: Mapping[str, Declares]) -> Found | None:
        """Return the values if they are others than before; called often."""


class ExpandingSource(EntrySource):
    """Puts the entries that ``for_each`` makes in place of their declarations; the only place that does.

    Without ``values`` no function is called: declarations that need one make no entry.
    """

    def __init__(self, app: Any, source: EntrySource, values: ValueSource | None = None) -> None:
        super().__init__(app)
        self._source, self._values = source, values
        self.strict = source.strict
        self._found: Found | None = None
        self._functions: dict[str, Declares] = {}
        self._expanded = Expanded({})

    @property
    def templates(self) -> Mapping[str, EntryTemplate]:
        """The declarations with ``for_each``, by name."""
        return self._expanded.templates

    def entries(self) -> Mapping[str, Any]:
        """Read the entries, and make those of ``for_each``."""
        entries = self._source.entries()
        declares = find_for_each(entries, raw_settings(self._app).get(ENTRIES))
        self._functions = {name: one for name, one in declares.items() if one and one.each.functions}
        found, self._found = self._found, None
        if found is None:
            found = self._values.first(self._functions) if self._functions and self._values else {}
        self._expanded = expand(entries, declares, found)
        return self._expanded.entries

    def has_changed(self) -> bool:
        """Return whether the source has changed, or a function has returned other values."""
        if self._functions and self._values is not None:
            self._found = self._values.changed(self._functions) or self._found
        return self._source.has_changed() or self._found is not None

    def declarations(self, schedule: Mapping[str, ScheduleEntry]) -> dict[str, Declaration]:
        """Return the entries as the configuration reads them."""
        found = {name: declaration_of(entry) for name, entry in schedule.items()}
        for name, expansion in self._expanded.expansions.items():
            if name in found:
                found[name] = replace(found[name], policy=UNSET, expansion=expansion)
        return found

    def refuse(self, template: str) -> list[str]:
        """Leave out a declaration with mistakes; return the names of its entries."""
        expanded = self._expanded
        kept = {name: one for name, one in expanded.templates.items() if name != template}
        self._expanded = replace(expanded, templates=kept)
        return [name for name, one in expanded.expansions.items() if one.of == template]

    def record_sent(self, name: str, at: Instant) -> None:
        """Record it for the declaration, which is what the source shows."""
        expansion = self._expanded.expansions.get(name)
        self._source.record_sent(name if expansion is None else expansion.of, at)

    def flush(self) -> None:
        """Write what was recorded."""
        self._source.flush()

    def disable_expired(self, now: Instant, decided: Callable[[str], bool]) -> None:
        """Disable entries that have ended; a declaration once that holds for all its entries."""

        def all_decided(name: str) -> bool:
            made = [made for made, one in self._expanded.expansions.items() if one.of == name]
            return all(map(decided, made or [name]))

        self._source.disable_expired(now, all_decided if self._expanded.templates else decided)


def open_source(app: Any, chosen: Source, values: ValueSource | None = None) -> ExpandingSource:
    """Open the source that ``catchup_source`` names; `ConfigurationError` when it cannot be used."""
    return ExpandingSource(app, _open(app, chosen), values)


def _open(app: Any, chosen: Source) -> EntrySource:
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
