"""A missing service skips a test, unless it was promised."""

from __future__ import annotations

import pytest

from tests import services


def test_a_service_nobody_promised_is_a_skip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CATCHUP_REQUIRE", "chromium")

    with pytest.raises(pytest.skip.Exception, match="needs rabbitmq: it is silent"):
        services.missing("rabbitmq", "it is silent")


def test_a_promised_service_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CATCHUP_REQUIRE", "chromium, rabbitmq")

    with pytest.raises(pytest.fail.Exception, match="rabbitmq is in CATCHUP_REQUIRE, but it is silent"):
        services.missing("rabbitmq", "it is silent")


def test_a_closed_port_is_told_with_its_url() -> None:
    url = "amqp://guest:guest@127.0.0.1:1//"

    reason = services.why_rabbitmq_is_silent(url)

    assert reason is not None
    assert reason.startswith(f"nothing answers at {url}")
