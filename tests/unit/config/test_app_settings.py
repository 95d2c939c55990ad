"""The ``catchup_*`` settings of an app, whatever namespace it reads them under."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery

from celery_catchup.config.app_settings import misplaced_settings, raw_settings, read_settings
from celery_catchup.config.settings import Settings
from celery_catchup.errors import ConfigurationError

apps: list[Celery] = []


@pytest.fixture(autouse=True)
def _close_apps() -> Iterator[None]:
    yield
    while apps:
        apps.pop().close()


def an_app(source: Any, namespace: str | None = None) -> Celery:
    app = Celery("proj", set_as_current=False)
    app.config_from_object(source, namespace=namespace)
    apps.append(app)
    return app


def test_settings_are_found_under_the_apps_own_prefix() -> None:
    class Conf:
        CELERY_CATCHUP_RUN_LEASE_TTL = "30s"
        CELERY_CATCHUP_ENTRIES = {"a": "6h"}  # noqa: RUF012 - a settings module has such
        CATCHUP_ELSEWHERE = 1

    app = an_app(Conf, "CELERY")
    theirs = {"catchup_run_lease_ttl": "30s", "catchup_entries": {"a": "6h"}}

    assert raw_settings(app) == theirs
    app.conf.catchup_namespace = "mine"
    assert raw_settings(app) == {**theirs, "catchup_namespace": "mine"}


@pytest.mark.parametrize(
    ("namespace", "key", "right"),
    [
        ("CELERY", "CATCHUP_ENTRIES", "write CELERY_CATCHUP_ENTRIES"),
        ("CELERY", "CATCHUP_ENTIRES", "write CELERY_CATCHUP_ENTRIES"),
        ("CELERY", "CATCHUP_REDIS_URL", "write CELERY_CATCHUP_REDIS_URL"),
        ("CELERY", "celery_catchup_entries", "write CELERY_CATCHUP_ENTRIES"),
        (None, "CELERY_CATCHUP_ENTRIES", "write catchup_entries, or give config_from_object namespace="),
        (None, "celery_catchup_entries", "write catchup_entries"),
        (None, "catch_up_entries", "write catchup_entries"),
        (None, "catchupEntries", "write catchup_entries"),
        (None, "cathcup_entries", "write catchup_entries"),
    ],
)
def test_a_setting_of_ours_that_celery_does_not_read_is_a_mistake_that_names_the_right_place(
    namespace: str | None, key: str, right: str
) -> None:
    app = an_app(type("Conf", (), {key: {"a": "6h"}}), namespace)

    (mistake,) = misplaced_settings(app)

    assert mistake.where == key
    assert right in str(mistake)


@pytest.mark.parametrize("namespace", ["CELERY", None])
def test_settings_of_others_are_left_alone(namespace: str | None) -> None:
    class Conf:
        CATCHALL_ADDRESS = "a@example.org"
        CATCHUP_API_KEY = "x"
        CELERY_CATCHUP = True
        KETCHUP_ENTRIES = 5

    if namespace is None:
        del Conf.CATCHUP_API_KEY  # without a namespace every catchup_* is read, and refused when unknown
    app = an_app(Conf, namespace)

    assert list(misplaced_settings(app)) == []


def test_some_settings_can_be_read_past_the_mistakes_of_others() -> None:
    app = an_app({"catchup_namespace": "mine", "catchup_typo": 1, "catchup_batch_size": "many"})

    assert read_settings(app, only=["namespace"]) == Settings(namespace="mine")
    with pytest.raises(ConfigurationError, match="2 mistakes"):
        read_settings(app)
