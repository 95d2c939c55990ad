"""The fingerprint of an entry changes with its slots: zone, role, dates and id are part of it."""

from __future__ import annotations

from datetime import UTC
from typing import Any

import pytest

from celery_catchup.beat.fingerprints import entry_fingerprint, former_fingerprint
from celery_catchup.config.configuration import Declaration, load
from celery_catchup.config.policy import Policy
from celery_catchup.config.schedule_syntax import ScheduleForm

NINE = "0 9 * * *"


def declared(schedule: object, policy: object = "1d") -> tuple[ScheduleForm, Policy | None]:
    found = load({}, declared={"e": Declaration(schedule, policy)}, timezone=UTC)
    return found.forms["e"], found.policies["e"]


@pytest.mark.parametrize(
    ("schedule", "policy", "text"),
    [
        (NINE, "1d", "v2:0 9 * * *@UTC"),
        (NINE, {"window": "1d", "timezone": "Asia/Tokyo"}, "v2:0 9 * * *@Asia/Tokyo"),
        ({"cron": NINE, "timezone": "Asia/Tokyo"}, "1d", "v2:0 9 * * *@Asia/Tokyo"),
        ([NINE, 30], "1d", "v2:0 9 * * *@UTC | v2:every 30s"),
        ({"start": NINE, "stop": "0 17 * * *"}, "1d", "v2:0 9 * * *@UTC | v2:stop 0 17 * * *@UTC"),
        ({"start": NINE, "restart": "0 17 * * *"}, "1d", "v2:0 9 * * *@UTC | v2:restart 0 17 * * *@UTC"),
        ({"cron": NINE, "id": "x"}, "1d", "v2:#x 0 9 * * *@UTC"),
        (
            {"cron": NINE, "end_date": "2026-03-01"},
            {"window": "1d", "start_date": "2026-02-01", "end_date": "2026-12-01"},
            "v2:0 9 * * *@UTC from 2026-02-01T00:00:00Z until 2026-03-01T00:00:00Z",
        ),
    ],
)
def test_a_fingerprint_tells_zone_role_dates_and_id(schedule: Any, policy: Any, text: str) -> None:
    assert entry_fingerprint(*declared(schedule, policy), UTC) == text


def test_the_fingerprint_of_version_0_1_has_none_of_them() -> None:
    written = {"start": {"cron": NINE, "timezone": "Asia/Tokyo", "start_date": "2026-02-01"}, "stop": NINE}

    assert former_fingerprint(*declared(written), UTC) == "0 9 * * *@UTC | 0 9 * * *@UTC"
