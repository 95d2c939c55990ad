"""``for_each`` as it is written: what is accepted, and every mistake with value and fix."""

from __future__ import annotations

import re
from typing import Any

import pytest

from celery_catchup.config.configuration import Declaration, load
from celery_catchup.config.for_each import FOR_EACH, ForEach
from celery_catchup.errors import ConfigurationError
from celery_catchup.timetables.zones import zone_named

UTC = zone_named("UTC")


def parse(written: object) -> ForEach:
    found: ForEach = FOR_EACH.read(written)
    return found


def test_two_arguments_make_an_entry_of_each_pair() -> None:
    each = parse({"tenant": ["eu", "us"], "plan": ("gold",)})

    assert each.combinations({}) == [("eu", "gold"), ("us", "gold")]


def test_there_are_no_entries_before_a_function_has_answered() -> None:
    each = parse({"tenant": "proj.tenants:active", "plan": ["gold"]})

    assert each.combinations({}) == []
    assert each.combinations({"tenant": ("eu",)}) == [("eu", "gold")]


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ([], "expected a mapping such as {'tenant': ['eu', 'us']}, got []"),
        ({}, "expected a mapping"),
        ({"tenant": []}, "tenant: the list is empty"),
        ({"tenant": "eu"}, "tenant: expected a list, or a function such as 'proj.tenants:active', got 'eu'"),
        ({"tenant": 5}, "tenant: expected a list of texts such as ['eu', 'us'], got 5"),
        ({"tenant": ["eu", "eu"]}, "'eu' is there 2 times; keep one of them"),
        ({"tenant": [1, "b"]}, "expected text, got 1; put it in quotes"),
        ({"tenant": ["a[b"]}, "'a[b' has [, which mean something in names; use another value"),
        ({"tenant": ["a,b"]}, "'a,b' has ,"),
        ({"tenant": ["a*"]}, "'a*' has *"),
        ({"tenant": ["a\nb"]}, "has unprintable characters"),
        ({"tenant": [""]}, "expected a text without blanks around it, got ''"),
        ({"tenant": [" a"]}, "expected a text without blanks around it, got ' a'"),
        ({"ten ant": ["a"]}, "expected the name of a keyword argument, got 'ten ant'"),
        ({"a": ["1"], "b": ["1"], "c": ["1"]}, "expected at most 2 arguments, got 3"),
        ({"a": [str(n) for n in range(10_001)]}, "makes 10,001 entries, and at most 10,000 are allowed"),
        ({"a": [str(n) for n in range(101)], "b": [str(n) for n in range(100)]}, "makes 10,100 entries"),
    ],
)
def test_every_mistake_names_its_value_and_what_to_do(written: object, says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        parse(written)


def test_several_mistakes_are_reported_at_once() -> None:
    with pytest.raises(ValueError, match="'a,' has ,.*'b' is there 2 times.*plan: the list is empty"):
        parse({"tenant": ["a,", "b", "b"], "plan": []})


def mistakes(policies: dict[str, Any], *, declaration: object = None) -> list[str]:
    written = Declaration("0 * * * *") if declaration is None else declaration
    with pytest.raises(ConfigurationError) as refused:
        load({"catchup_entries": policies}, declared={"sync": written}, timezone=UTC)  # type: ignore[dict-item]
    return [str(mistake) for mistake in refused.value.mistakes]


def test_for_each_is_not_for_every_other_entry() -> None:
    (mistake,) = mistakes({"*": {"window": "1d", "for_each": {"tenant": ["eu"]}}})

    assert mistake.startswith("catchup_entries.*.for_each: works for one declared entry at a time")


def test_fields_that_have_no_effect_beside_it_are_mistakes() -> None:
    each = {"tenant": ["eu"]}
    found = mistakes({"sync": {"window": "1d", "for_each": each, "tenant": "x", "refresh": "1m"}})

    assert found == [
        "catchup_entries.sync.refresh: has no effect without a function in for_each; remove it",
        "catchup_entries.sync.tenant: 'x' has no effect: for_each sets it; remove it",
    ]
