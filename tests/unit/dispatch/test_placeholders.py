"""Placeholders in a message are filled in, and nothing else is."""

from __future__ import annotations

import json
from typing import Any

import pytest

from celery_catchup.dispatch import render
from celery_catchup.dispatch.placeholders import placeholder, replace_text, to_json, value_placeholder

RUN: dict[str, Any] = {
    "slot": 1_770_458_400_000,
    "previous": 1_770_454_800_000,
    "trigger": "catchup",
    "attempt": 1,
    "sends": 1,
}


def filled(text: str, run: dict[str, Any] = RUN, **template: Any) -> str:
    return render({"message": text, **template}, "r1", run, 1_000_000)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("@catchup:task_id@", "r1"),
        ("@catchup:run_id@", "r1"),
        ("@catchup:delivery_tag@", "r1:1"),
        ("@catchup:trigger_type@", "catchup"),
        ("@catchup:scheduled_time@", "2026-02-07T10:00:00Z"),
        ("@catchup:interval_start@", "2026-02-07T09:00:00Z"),
        ("@catchup:interval_end@", "2026-02-07T10:00:00Z"),
        ("@catchup:expires@", ""),
        ("@catchup:eta@", ""),
        ('"@catchup!is_catchup@"', "true"),
        ("@catchup!is_catchup@", "@catchup!is_catchup@"),
        ("@catchup:nobody_knows@", "@catchup:nobody_knows@"),
        ("@catchup:task_id", "@catchup:task_id"),
        ("a@catchup:task_id@@catchup:run_id@b", "ar1r1b"),
    ],
)
def test_a_placeholder_becomes_what_it_stands_for(text: str, expected: str) -> None:
    assert filled(text) == expected


def test_the_second_attempt_is_another_task_of_the_same_run() -> None:
    again = RUN | {"attempt": 2, "sends": 3}

    assert filled("@catchup:task_id@ @catchup:run_id@ @catchup:delivery_tag@", again) == "r1-2 r1 r1:3"


def test_relative_times_count_from_now() -> None:
    text = "@catchup:expires@ @catchup:eta@"

    assert filled(text, expires_ms=0, countdown_ms=1500) == "1970-01-01T00:16:40Z 1970-01-01T00:16:41.500Z"


def test_the_first_slot_has_no_previous_one() -> None:
    first = {name: value for name, value in RUN.items() if name != "previous"}

    assert filled("<@catchup:interval_start@>", first) == "<>"


@pytest.mark.parametrize("trigger", ["scheduler", "backfill", "manual"])
def test_only_catch_up_is_catch_up(trigger: str) -> None:
    assert filled('"@catchup!is_catchup@"', RUN | {"trigger": trigger}) == "false"


def test_text_that_only_looks_like_a_placeholder_stays_what_it_is() -> None:
    theirs = ["@catchup:task_id@", "@catchup!is_catchup@", "\\@catchup:run_id@", "@@catchup:eta@", "ü\ud800"]
    sealed = to_json(
        {"theirs": theirs, "ours": placeholder("task_id"), "raw": value_placeholder("is_catchup")}
    )

    assert json.loads(filled(sealed)) == {"theirs": theirs, "ours": "r1", "raw": True}


def test_a_text_is_replaced_in_every_string() -> None:
    tree = {"a": "x-id-x", "b": ["id", 1, None, {"id": "id"}], "c": True}

    assert replace_text(tree, "id", "P") == {"a": "x-P-x", "b": ["P", 1, None, {"id": "P"}], "c": True}
