"""Patterns of entry names: two wildcards, and nothing else."""

from __future__ import annotations

import time

import pytest

from celery_catchup.config.name_patterns import entries_of, matching

NAMES = ("sync", "sync[eu]", "sync[us]", "sync[eu,gold]", "synce", "a.b", "axb", "odd*name", "oddname")


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("sync[*]", ["sync[eu]", "sync[us]", "sync[eu,gold]"]),
        ("sync[eu*]", ["sync[eu]", "sync[eu,gold]"]),
        ("sync[*,gold]", ["sync[eu,gold]"]),
        ("sync[?s]", ["sync[us]"]),
        ("sync[eu]", ["sync[eu]"]),
        ("a.b", ["a.b"]),
        ("a?b", ["a.b", "axb"]),
        ("*", list(NAMES)),
        ("**e**", ["sync[eu]", "sync[eu,gold]", "synce", "odd*name", "oddname"]),
        ("SYNC[*]", []),
        ("", []),
    ],
)
def test_brackets_and_dots_are_text_and_only_star_and_question_mark_are_wildcards(
    pattern: str, found: list[str]
) -> None:
    assert matching(pattern, NAMES) == found


def test_an_entry_whose_name_has_a_wildcard_is_named_by_it_alone() -> None:
    assert entries_of("odd*name", NAMES) == ["odd*name"]
    assert entries_of("odd*", NAMES) == ["odd*name", "oddname"]


def test_a_name_without_wildcards_matches_nothing_else() -> None:
    assert entries_of("sync[e]", NAMES) == []


def test_a_hostile_pattern_takes_no_longer_than_others() -> None:
    begun = time.process_time()

    assert matching("*a" * 200 + "b", ["a" * 400] * 20) == []

    assert time.process_time() - begun < 1
