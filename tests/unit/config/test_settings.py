"""App-wide settings: names, defaults, limits, the preset, and no password in sight."""

from __future__ import annotations

from datetime import timedelta

import pytest

from celery_catchup.config.settings import FirstStart, OnDrift, Preset, Settings
from celery_catchup.errors import ConfigurationError
from celery_catchup.timetables.cron_dialects import Dialect


def mistakes(raw: dict[str, object]) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        Settings.read(raw)
    return [str(mistake) for mistake in caught.value.mistakes]


def test_defaults() -> None:
    settings = Settings.read({})

    assert (settings.redis_url, settings.namespace, settings.preset) == (None, None, None)
    assert (settings.max_runs, settings.rate_limit) == (None, None)
    assert settings.cron_dialect is Dialect.EXTENDED
    assert settings.on_drift is OnDrift.ADOPT
    assert settings.first_start is FirstStart.WAIT
    assert settings.lease_ttl == timedelta(seconds=2)
    assert settings.run_lease_ttl == timedelta(seconds=60)
    assert settings.ledger_ttl == timedelta(days=30)
    assert settings.poll_interval == timedelta(seconds=1)
    assert settings.batch_size == 500
    assert settings.export_env is False


def test_settings_carry_the_prefix_where_the_user_writes_them() -> None:
    settings = Settings.read({"catchup_rate_limit": "100ms", "catchup_cron_dialect": "posix"})

    assert settings.rate_limit == timedelta(milliseconds=100)
    assert settings.cron_dialect is Dialect.POSIX


def test_an_unknown_setting_is_a_mistake_with_the_nearest_name() -> None:
    assert mistakes({"catchup_redis": "redis://localhost"}) == [
        "catchup_redis: unknown setting; did you mean 'catchup_redis_url'?"
    ]
    assert mistakes({"catchup_entires": {}}) == [
        "catchup_entires: unknown setting; did you mean 'catchup_entries'?"
    ]


@pytest.mark.parametrize(("name", "shortest"), [("catchup_lease_ttl", 2), ("catchup_run_lease_ttl", 3)])
def test_a_lease_is_long_enough_to_be_renewed(name: str, shortest: int) -> None:
    assert Settings.read({name: f"{shortest}s"})

    short = f"{shortest - 1}s999ms"
    (mistake,) = mistakes({name: short})
    assert mistake.startswith(f"{name}: {short} is too short: a lease is renewed at a third of its length")
    assert mistake.endswith(f"set at least {shortest}s")


@pytest.mark.parametrize("namespace", ["", "a b", "{a}", "a*", "a\tb", "a\nb", "a\x00", "x" * 201, 5])
def test_a_namespace_must_fit_into_a_key(namespace: object) -> None:
    (mistake,) = mistakes({"catchup_namespace": namespace})

    assert mistake.startswith("catchup_namespace: ")
    assert mistake.isprintable()


@pytest.mark.parametrize("namespace", ["proj", "proj:beat-1", "größe", "a.b/c"])
def test_other_names_are_fine(namespace: str) -> None:
    assert Settings.read({"catchup_namespace": namespace}).namespace == namespace


@pytest.mark.parametrize("size", [0, -1, 1001, True, "500", 10.0])
def test_a_batch_is_from_one_to_a_thousand(size: object) -> None:
    assert mistakes({"catchup_batch_size": size}) == [
        f"catchup_batch_size: expected a whole number from 1 to 1000, got {size!r}"
    ]


@pytest.mark.parametrize(
    "url", ["logs", "javascript:alert(1)", "https://logs/{secret}", "https://logs/{}", 5]
)
def test_the_url_of_logs_is_a_url_with_known_placeholders(url: object) -> None:
    assert Settings.read({"catchup_log_url": "https://logs/?q={task_id}"}).log_url

    (mistake,) = mistakes({"catchup_log_url": url})
    assert mistake.startswith("catchup_log_url: expected ")


def test_the_preset_sets_caps_and_rate() -> None:
    settings = Settings.read({"catchup_preset": "conservative"})

    assert settings.preset is Preset.CONSERVATIVE
    assert settings.max_runs == 100
    assert settings.rate_limit == timedelta(milliseconds=100)


def test_the_considerate_preset_sets_a_lane_a_limit_and_a_hold() -> None:
    settings = Settings.read({"catchup_preset": "considerate", "catchup_hold_above": 50})

    assert (settings.priority, settings.max_active, settings.hold_above) == ("lowest", 4, 50)
    assert settings.max_runs is None


@pytest.mark.parametrize("own", [7, None])
def test_what_is_set_explicitly_comes_before_the_preset(own: int | None) -> None:
    settings = Settings.read({"catchup_preset": "conservative", "catchup_max_runs": own})

    assert settings.max_runs == own
    assert settings.rate_limit == timedelta(milliseconds=100)


def test_an_unknown_preset_is_one_mistake() -> None:
    assert mistakes({"catchup_preset": "careful"}) == [
        "catchup_preset: expected conservative or considerate, got 'careful'"
    ]
    assert mistakes({"catchup_preset": ["conservative"]}) == [
        "catchup_preset: expected conservative or considerate, got ['conservative']"
    ]


def test_no_way_of_printing_settings_shows_a_password() -> None:
    settings = Settings(redis_url="redis://:hunter2@localhost/0")

    assert settings.redis_url == "redis://:hunter2@localhost/0"
    for text in (repr(settings), str(settings), f"{settings}"):
        assert "hunter2" not in text
        assert "redis://***@localhost/0" in text


def test_no_error_shows_a_password_either() -> None:
    with pytest.raises(ValueError, match="port") as caught:
        Settings(redis_url="redis://:hunter2@localhost:x/0")

    assert "hunter2" not in str(caught.value)


def test_every_setting_has_a_sentence_for_the_reference() -> None:
    for name, field in Settings.model_fields.items():
        assert (field.description or "").endswith("."), name
