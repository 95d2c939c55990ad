"""A Django project in this process: django-celery-beat's tables on SQLite and, where one runs, PostgreSQL.

Django is set up once a process. A test chooses the database and ``USE_TZ`` for its duration, and the
clock that Django and django-celery-beat read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import django
import pytest
from django.conf import settings
from django.core.management import call_command
from django.db import connections
from django.utils import timezone

from celery_catchup.testing import FakeClock
from tests.services import missing

POSTGRES = {"host": "127.0.0.1", "port": 5432, "user": "postgres", "dbname": "test"}


class DjangoProject:
    """Django's settings, and the databases that there are."""

    def __init__(self, file: Path) -> None:
        self._postgres_name = f"catchup_test_{os.getpid()}"
        self.without_postgres = self._create_postgres()
        """Why there is no PostgreSQL; empty when there is."""
        sqlite = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(file)}
        databases: dict[str, Any] = {"default": sqlite}
        if not self.without_postgres:
            databases["postgresql"] = {
                "ENGINE": "django.db.backends.postgresql",
                "NAME": self._postgres_name,
                "HOST": POSTGRES["host"],
                "PORT": POSTGRES["port"],
                "USER": POSTGRES["user"],
                "CONN_MAX_AGE": None,  # a connection for each tick would take most of the time
            }
        settings.configure(
            USE_TZ=True,
            TIME_ZONE="UTC",
            SECRET_KEY="test",
            DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
            INSTALLED_APPS=[
                "django.contrib.admin",
                "django.contrib.auth",
                "django.contrib.contenttypes",
                "django.contrib.messages",
                "django.contrib.sessions",
                "django.contrib.staticfiles",
                "django_celery_beat",
                "celery_catchup.django",
            ],
            MIDDLEWARE=[
                "django.contrib.sessions.middleware.SessionMiddleware",
                "django.middleware.csrf.CsrfViewMiddleware",
                "django.contrib.auth.middleware.AuthenticationMiddleware",
                "django.contrib.messages.middleware.MessageMiddleware",
            ],
            TEMPLATES=[
                {
                    "BACKEND": "django.template.backends.django.DjangoTemplates",
                    "APP_DIRS": True,
                    "OPTIONS": {
                        "context_processors": [
                            "django.template.context_processors.request",
                            "django.contrib.auth.context_processors.auth",
                            "django.contrib.messages.context_processors.messages",
                        ]
                    },
                }
            ],
            ROOT_URLCONF="tests.integration.django_urls",
            STATIC_URL="/static/",
            ALLOWED_HOSTS=["*"],
            PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
            DATABASES=databases,
        )
        django.setup()
        for alias in databases:
            call_command("migrate", verbosity=0, database=alias)

    @contextmanager
    def on(self, database: str, *, use_tz: bool) -> Iterator[None]:
        """Use that database, with or without time zones."""
        from django.test import override_settings

        if database == "postgresql" and self.without_postgres:
            missing("postgresql", f"{POSTGRES['host']} says: {self.without_postgres}")
        before = connections["default"]
        connections["default"] = connections["postgresql"] if database == "postgresql" else before
        try:
            with override_settings(USE_TZ=use_tz, DJANGO_CELERY_BEAT_TZ_AWARE=use_tz):
                yield
        finally:
            connections["default"].close()
            connections["default"] = before

    def close(self) -> None:
        """Remove the database on the server."""
        connections.close_all()
        if not self.without_postgres:
            self._on_server(f"DROP DATABASE {self._postgres_name} WITH (FORCE)")

    def _create_postgres(self) -> str:
        try:
            self._on_server(f"CREATE DATABASE {self._postgres_name}")
        except Exception as error:  # noqa: BLE001 - no driver, no server, no rights: each raises its own
            return str(error).splitlines()[0]
        return ""

    @staticmethod
    def _on_server(statement: str) -> None:
        import psycopg

        with psycopg.connect(**POSTGRES, autocommit=True, connect_timeout=3) as server:  # type: ignore[arg-type]
            server.execute(statement)  # type: ignore[call-overload]


def let_django_read(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give Django and django-celery-beat the test's clock."""
    from django_celery_beat import schedulers, tzcrontab, utils

    class Moment(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Any:
            moment = clock.now().astimezone(tz or timezone.get_default_timezone())
            return moment if tz else moment.replace(tzinfo=None)

        @classmethod
        def utcnow(cls) -> Any:
            return clock.now().astimezone(UTC).replace(tzinfo=None)

    def now() -> Any:
        return Moment.now(UTC) if settings.USE_TZ else Moment.now()

    module = SimpleNamespace(datetime=Moment, timedelta=timedelta)
    monkeypatch.setattr(timezone, "now", now)
    monkeypatch.setattr(tzcrontab, "datetime", Moment)
    monkeypatch.setattr(schedulers, "datetime", module)
    monkeypatch.setattr(utils, "datetime", module)
