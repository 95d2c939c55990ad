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
NEVER = ("0", "0", "30", "2", "*")
LONGEST = {2: 29, 4: 30, 6: 30, 9: 30, 11: 30}


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
    return _elements(
        fields, lambda index, element: _full(index, element) if _single(index, element) else element
    )


def last_value_with_a_step_is_the_whole_field(fields: Fields) -> Fields:
    def rewrite(index: int, element: str) -> str:
        start, slash, _ = element.partition("/")
        is_last = slash and start.isalnum() and _number(index, start) == BOUNDS[index][1]
        return _full(index, element) if is_last else element

    return _elements(fields, rewrite)


def star_with_a_step_restricts_a_day_field(fields: Fields) -> Fields:
    def rewrite(index: int, other: int) -> str:
        if "*" in fields[other] and _values(index, fields[index]) >= _values(index, "*"):
            return "*"  # unless it names every day and the other field has a star
        return re.sub(r"^\*/", "{}-{}/".format(*BOUNDS[index]), fields[index])

    days = rewrite(DAY_OF_MONTH, DAY_OF_WEEK), rewrite(DAY_OF_WEEK, DAY_OF_MONTH)
    return (*fields[:DAY_OF_MONTH], days[0], fields[MONTH], days[1])


def star_in_a_list_of_days_is_a_star(fields: Fields) -> Fields:
    return tuple(
        "*" if index in (DAY_OF_MONTH, DAY_OF_WEEK) and "*" in field.split(",") else field
        for index, field in enumerate(fields)
    )


def nth_weekday_hides_the_day_of_month(fields: Fields) -> Fields:
    days = _values(DAY_OF_MONTH, fields[DAY_OF_MONTH])
    weeks = [int(n) for n in re.findall(r"#(\d)", fields[DAY_OF_WEEK])]
    possible = {day for week in weeks for day in range(7 * week - 6, 7 * week + 1)}
    if re.search(r"l\d", fields[DAY_OF_WEEK]):
        lengths = {LONGEST.get(month, 31) for month in _values(MONTH, fields[MONTH])}
        possible |= {
            day for length in lengths for day in range(length - (7 if length == 29 else 6), length + 1)
        }
    if not possible or fields[DAY_OF_MONTH] in ("*", "?"):
        return fields
    if days and not days & possible:
        return NEVER  # it looks for a day that is both, and gives up
    return (*fields[:DAY_OF_MONTH], "*", *fields[MONTH:])


def nearest_weekday_hides_the_day_of_week(fields: Fields) -> Fields:
    if "w" not in fields[DAY_OF_MONTH] or fields[DAY_OF_WEEK] in ("*", "?"):
        return fields
    if _values(DAY_OF_WEEK, fields[DAY_OF_WEEK]) <= {0, 6}:
        return NEVER  # as above: no weekday is at the weekend
    return (*fields[:DAY_OF_WEEK], "*")


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
        _number(index, pair[0]) > _number(index, pair[1])
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
    Quirk(
        Library.CRONITER,
        "5-5 means the whole field; every cron reads one value",
        one_value_is_the_whole_field,
    ),
    Quirk(
        Library.CRONITER,
        "59/15 means the whole field; from the last value on there is one value",
        last_value_with_a_step_is_the_whole_field,
    ),
    Quirk(
        Library.CRONITER,
        "*/2 in a day field counts as restricted and is ORed; Debian's cron sees the leading star and ANDs",
        star_with_a_step_restricts_a_day_field,
    ),
    Quirk(
        Library.CRONITER,
        "a list of days with a star in it is a star, and ANDed; Debian's cron sees only a leading star",
        star_in_a_list_of_days_is_a_star,
    ),
    Quirk(
        Library.CRONITER,
        "the 25th or the last Wednesday (L3), or the second (3#2), gives only the Wednesdays; either matches",
        nth_weekday_hides_the_day_of_month,
    ),
    Quirk(
        Library.CRONITER,
        "15W or Monday gives only the 15th's nearest weekday; either matches",
        nearest_weekday_hides_the_day_of_week,
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
    Quirk(
        Library.CRONSIM,
        "a date that never comes is refused; cron accepts and never runs it",
        impossible_date_is_refused,
    ),
    Quirk(Library.CRONSIM, "fri-mon is refused; croniter wraps it around", backwards_range_is_refused),
    Quirk(Library.CRONSIM, "it has no ?, 15W and L5; croniter has", form_is_unknown),
)


def _elements(fields: Fields, rewrite: Callable[[int, str], str]) -> Fields:
    return tuple(
        ",".join(rewrite(index, element) for element in field.split(","))
        for index, field in enumerate(fields)
    )


def _single(index: int, element: str) -> bool:
    """Whether the element is a range of one value, however its ends are spelt."""
    ends = element.partition("/")[0].split("-")
    return len(ends) == 2 and _number(index, ends[0]) == _number(index, ends[1])


def _full(index: int, element: str) -> str:
    """The whole field with the element's step, and no star in it."""
    low, high = BOUNDS[index]
    return f"{low}-{high}/{element.partition('/')[2] or 1}"


def _impossible(fields: Fields) -> bool:
    """Whether no month of the expression is long enough for any of its days."""
    months = (LONGEST.get(month, 31) for month in _values(MONTH, fields[MONTH]))
    return min(_values(DAY_OF_MONTH, fields[DAY_OF_MONTH]), default=1) > max(months)


def _values(index: int, field: str) -> set[int]:
    """The values of a field; L, W and # are none."""
    return {value for element in field.split(",") for value in _element_values(index, element)}


def _element_values(index: int, element: str) -> list[int]:
    span, slash, step = element.partition("/")
    low, high = BOUNDS[index]
    if not re.fullmatch(r"[*?]|\w+(-\w+)?", span) or re.search(r"\d[lw]|[lw]\d|^[lw]$", span):
        return []
    if span in ("*", "?"):
        first, last = low, high
    else:
        first, last = (_number(index, end) for end in (span.split("-") * 2)[:2])
        last = high if slash and "-" not in span else last
    values = range(first, last + 1) if first <= last else [*range(first, high + 1), *range(low, last + 1)]
    return [value % 7 if index == DAY_OF_WEEK else value for value in values[:: int(step or 1)]]


def _number(index: int, text: str) -> int:
    names = NAMES.get(index, {})
    return names[text] if text in names else int(text)
