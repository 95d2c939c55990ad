"""Sentences about wrong values stay on one line and short, whatever the value was."""

from __future__ import annotations

from datetime import date, timedelta

import pytest

from celery_catchup.error_text import did_you_mean, listed, nearest, path, shown


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("6h", "'6h'"),
        ("a\nb", "'a\\nb'"),
        ("x" * 100, f"'{'x' * 60}'…"),
        (5, "5"),
        (None, "None"),
        (b"6h", "b'6h'"),
        (["6h", 5], "['6h', 5]"),
        ([object()], "a list of 1"),
        ({"a": {}}, "a dict of 1"),
        (list(range(1000)), "a list of 1000"),
        (date(2026, 2, 7), "2026-02-07"),
        (timedelta(hours=1), "1:00:00"),
        (object(), "an object object"),
        (int, "a type object"),
    ],
)
def test_a_value_is_shown_as_its_writer_knows_it(value: object, text: str) -> None:
    assert shown(value) == text


def test_a_number_that_python_will_not_write_is_no_trap() -> None:
    assert shown(10**10_000) == "an int too long to write"
    assert shown([10**10_000]) == "a list too long to write"


def test_a_list_that_contains_itself_is_no_trap() -> None:
    endless: list[object] = []
    endless.append(endless)

    assert shown(endless) == "a list of 1"


def test_the_nearest_word_ignores_case_and_may_be_none() -> None:
    assert nearest("WINDW", ["select", "window"]) == "window"
    assert nearest("zzz", ["select", "window"]) is None
    assert did_you_mean("zzz", ["window"]) == ""
    assert did_you_mean(None, ["window"]) == ""


def test_a_very_long_word_is_compared_in_no_time() -> None:
    assert nearest("window" * 1_000_000, ["window"]) is None


def test_words_are_listed_as_one_says_them() -> None:
    assert listed(["all", "latest", "false"]) == "all, latest or false"
    assert listed(["all"]) == "all"


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("window", "a.window"),
        ("", "a.''"),
        (" x", "a.' x'"),
        ("x\ny", "a.'x\\ny'"),
        (5, "a.5"),
        (None, "a.None"),
    ],
)
def test_a_path_quotes_what_would_not_read_well(key: object, text: str) -> None:
    assert path("a", key) == text
