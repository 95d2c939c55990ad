"""Receivers of notifications: what is accepted, and that no mistake shows a URL or a secret."""

from __future__ import annotations

from typing import Any

import pytest

from celery_catchup.config.receivers import Format, NotificationKind, Receiver
from celery_catchup.config.settings import Settings
from celery_catchup.errors import ConfigurationError

HOOK = "https://hooks.example.com/services/T000/SeCrEtPath"
SECRET = "SeCrEtValue-of-32-characters-long"


def read(value: Any) -> tuple[Receiver, ...]:
    return Settings.read({"catchup_notify": value}).notify


def mistake(value: Any) -> str:
    with pytest.raises(ConfigurationError) as caught:
        read(value)
    return str(caught.value)


def test_a_receiver_has_every_kind_in_json_unless_it_says_otherwise() -> None:
    (plain,) = read([{"url": HOOK}])
    (chosen,) = read([{"url": HOOK, "on": ["dead", "overdue"], "format": "slack", "secret": SECRET}])

    assert (plain.on, plain.format, plain.secret) == (frozenset(NotificationKind), Format.JSON, None)
    assert chosen.on == {NotificationKind.DEAD, NotificationKind.OVERDUE}
    assert (chosen.format, chosen.secret) == (Format.SLACK, SECRET)


def test_every_mistake_is_reported_at_once() -> None:
    told = mistake(
        [
            {"url": "ftp://example.com", "on": ["ded", "late"], "formt": "json"},
            {"on": [], "format": "xml", "secret": "short"},
            "https://example.com",
        ]
    )

    for part in (
        "catchup_notify",
        "[0].url: the URL must begin with http:// or https://",
        "[0].on: expected missed, not_recovered",
        "did you mean 'dead'?",
        "got 'late'",
        "[0]: unknown field 'formt'; did you mean 'format'?",
        "[1].url: missing",
        "[1].on: expected a list of kinds",
        "[1].format: expected json or slack, got 'xml'",
        "[1].secret: is too short to sign with; use at least 16 random characters",
        "[2]: expected a mapping with 'url', got a value of type str",
    ):
        assert part in told, told


@pytest.mark.parametrize(
    "value",
    [
        HOOK,
        {"url": HOOK},
        [HOOK],
        [{"url": [HOOK]}],
        [{"url": HOOK + " "}],
        [{"url": "http://user:SeCrEtValue@example.com:99999/"}],
        [{"url": "https:///SeCrEtPath"}],
        [{"url": HOOK}, {"url": HOOK}],
        [{"url": HOOK, "secret": SECRET.encode()}],
        [{"url": HOOK, "secret": "SeCrEt"}],
        [{"url": HOOK}] * 21,
    ],
    ids=lambda value: type(value).__name__,
)
def test_no_mistake_shows_a_url_or_a_secret(value: Any) -> None:
    assert "SeCrEt" not in mistake(value)


def test_neither_a_receiver_nor_the_settings_show_what_is_secret() -> None:
    settings = Settings.read(
        {"catchup_notify": [{"url": "https://me:SeCrEt@example.com/SeCrEt", "secret": SECRET}]}
    )

    (receiver,) = settings.notify

    assert "SeCrEt" not in repr(settings) + repr(receiver) + receiver.shown + receiver.key
    assert receiver.shown == "https://example.com/…"
