"""Every trigger, state and skip reason has one row with all that depends on it."""

from __future__ import annotations

from celery_catchup.model import RunState, Severity, SkipReason, SlotMark, Trigger


def test_each_trigger_has_a_label_and_a_mark() -> None:
    assert {one: (one.label, one.mark, one.is_catchup) for one in Trigger} == {
        Trigger.SCHEDULER: ("Scheduled", SlotMark.ON_TIME, False),
        Trigger.CATCHUP: ("Catch-up", SlotMark.CAUGHT_UP, True),
        Trigger.BACKFILL: ("Backfill", SlotMark.CAUGHT_UP, False),
        Trigger.MANUAL: ("Manual", SlotMark.ON_TIME, False),
    }


def test_each_run_state_is_in_flight_failed_or_succeeded() -> None:
    assert [one for one in RunState if one.in_flight] == ["waiting", "queued", "running"]
    assert [one for one in RunState if one.failed] == ["failed", "revoked", "dead"]
    assert [one for one in RunState if one.mark is None] == ["succeeded"]


def test_each_skip_reason_has_one_row() -> None:
    assert SkipReason.of(Severity.LOST) == ("cap_exceeded", "expired", "catchup_off", "removed")
    assert SkipReason.of(Severity.BY_POLICY) == (
        "guard_blocked",
        "superseded",
        "paused",
        "manual_run",
        "discarded",
    )
    assert [one for one in SkipReason if one.has_run] == ["already_exists", "in_flight"]
    assert [one for one in SkipReason if not one.rule.missed] == [
        "already_exists",
        "paused",
        "removed",
        "in_flight",
        "excluded",
    ]
    assert [one for one in SkipReason if not one.recoverable] == [
        "already_exists",
        "in_flight",
        "not_followed",
        "excluded",
        "covered",
    ]
    assert all(one.rule.meaning for one in SkipReason)
