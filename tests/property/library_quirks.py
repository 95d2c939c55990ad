"""Where croniter and cronsim differ from us on purpose: what each makes of an expression, and why.

A quirk rewrites an expression into the one that we would have to write to get the library's slots.
So a difference counts as explained only when the quirks that apply predict it slot by slot.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from tests.property.oracle_debian import MONTHS, WEEKDAYS

Fields = tuple[str, ...]
BOUNDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
NAMES = {3: MONTHS, 4: WEEKDAYS}
DAY_OF_MONTH, MONTH, DAY_OF_WEEK = 2, 3, 4
LONGEST_MONTHS = {2: 29, 4: 30, 6: 30, 9: 30, 11: 30}


class Library(Enum):
    CRONITER = "croniter"
    CRONSIM = "cronsim"


@dataclass(frozen=True)
class Quirk:
    """``rewrite`` gives what the library reads; None says that it refuses the expression."""

    library: Library
    reason: str
    rewrite: Callable[[Fields], Fields | None]


def one_value_is_the_whole_field(fields: Fields) -> Fields:
    return _elements(fields, lambda index, element: _full(index, element) if _single(index, element) else element)


def last_value_with_a_step_is_the_whole_field(fields: Fields) -> Fields:
    def rewrite(index: int, element: str) -> str:
        start, slash, _ = element.partition("/")
        is_last = slash and start.isalnum() and _value(index, start) == BOUNDS[index][1]
        return _full(index, element) if is_last else element

    return _elements(fields, rewrite)


def star_with_a_step_restricts_a_day_field(fields: Fields) -> Fields:
    return tuple(
        re.sub(r"^\*/", "{}-{}/".format(*BOUNDS[index]), field) if index in (DAY_OF_MONTH, DAY_OF_WEEK) else field
        for index, field in enumerate(fields)
    )


def star_in_a_list_of_days_is_a_star(fields: Fields) -> Fields:
    return tuple(
        "*" if index in (DAY_OF_MONTH, DAY_OF_WEEK) and "*" in field.split(",") else field
        for index, field in enumerate(fields)
    )


def impossible_date_hides_the_day_of_week(fields: Fields) -> Fields:
    return (*fields[:DAY_OF_WEEK], "*") if _impossible(fields) else fields


def one_value_with_a_step_is_open_ended(fields: Fields) -> Fields:
    def rewrite(index: int, element: str) -> str:
        return re.sub(r"-\w+/", "/", element) if _single(index, element) and "/" in element else element

    return _elements(fields, rewrite)


def open_ended_steps_reach_the_second_sunday(fields: Fields) -> Fields:
    def rewrite(index: int, element: str) -> str:
        return re.sub(r"^(\w+)/", r"\1-7/", element) if index == DAY_OF_WEEK else element

    return _elements(fields, rewrite)


def impossible_date_is_refused(fields: Fields) -> Fields | None:
    both_must_match = any(fields[index].startswith("*") for index in (DAY_OF_MONTH, DAY_OF_WEEK))
    return None if both_must_match and _impossible(fields) else fields


def backwards_range_is_refused(fields: Fields) -> Fields | None:
    backwards = any(
        _value(index, pair[0]) > _value(index, pair[1])
        for index, field in enumerate(fields)
        for element in field.split(",")
        if len(pair := element.partition("/")[0].split("-")) == 2
    )
    return None if backwards else fields


def form_is_unknown(fields: Fields) -> Fields | None:
    unknown = "?" in fields or "w" in fields[DAY_OF_MONTH] or re.search(r"\bl\d", fields[DAY_OF_WEEK])
    return None if unknown else fields


# Each library's quirks in the order in which they are to be applied.
QUIRKS = (
    Quirk(Library.CRONITER, "5-5 means the whole field; every cron reads one value", one_value_is_the_whole_field),
    Quirk(
        Library.CRONITER,
        "59/15 means the whole field; from the last value on there is one value",
        last_value_with_a_step_is_the_whole_field,
    ),
    Quirk(
        Library.CRONITER,
        "*/2 in a day field counts as restricted and is ORed; Debian's cron looks at the leading star and ANDs",
        star_with_a_step_restricts_a_day_field,
    ),
    Quirk(
        Library.CRONITER,
        "a list of days that contains a star is a star, and ANDed; Debian's cron looks at the first character",
        star_in_a_list_of_days_is_a_star,
    ),
    Quirk(
        Library.CRONITER,
        "31 February or Monday gives up at 31 February; the Mondays of February match",
        impossible_date_hides_the_day_of_week,
    ),
    Quirk(
        Library.CRONSIM,
        "5-5/2 is read as 5/2; a range ends where it says",
        one_value_with_a_step_is_open_ended,
    ),
    Quirk(
        Library.CRONSIM,
        "5/2 as day of week goes on to 7, which is Sunday; croniter, whose form it is, stops at 6",
        open_ended_steps_reach_the_second_sunday,
    ),
    Quirk(Library.CRONSIM, "a date that never comes is refused; cron accepts and never runs it", impossible_date_is_refused),
    Quirk(Library.CRONSIM, "fri-mon is refused; croniter wraps it around", backwards_range_is_refused),
    Quirk(Library.CRONSIM, "it has no ?, 15W and L5; croniter has", form_is_unknown),
)


def _elements(fields: Fields, rewrite: Callable[[int, str], str]) -> Fields:
    return tuple(
        ",".join(rewrite(index, element) for element in field.split(",")) for index, field in enumerate(fields)
    )


def _single(index: int, element: str) -> bool:
    """Whether the element is a range of one value, however its ends are spelt."""
    ends = element.partition("/")[0].split("-")
    return len(ends) == 2 and _value(index, ends[0]) == _value(index, ends[1])


def _full(index: int, element: str) -> str:
    """The whole field with the element's step, and no star in it."""
    low, high = BOUNDS[index]
    return f"{low}-{high}/{element.partition('/')[2] or 1}"


def _value(index: int, text: str) -> int:
    names = NAMES.get(index, {})
    return names[text] if text in names else int(text)


def _impossible(fields: Fields) -> bool:
    """Whether no month of the expression is long enough for its days; for lists of plain numbers."""
    days = [int(day) for day in re.findall(r"(?<![/\d])\d+", fields[DAY_OF_MONTH])]
    if "*" in fields[DAY_OF_MONTH] or not days or fields[MONTH].startswith("*"):
        return False
    months = [LONGEST_MONTHS.get(_value(MONTH, month), 31) for month in re.split(r"[,]", fields[MONTH])]
    return min(days) > max(months)
