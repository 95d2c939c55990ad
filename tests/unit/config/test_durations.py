"""Durations: what is read, what is refused and why, and that writing one and reading it agree."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celery_catchup.config.durations import FINE_UNITS, LONGEST, WINDOW_UNITS, format_duration, parse_duration
from celery_catchup.errors import DurationError

durations = st.integers(1, LONGEST // timedelta(milliseconds=1)).map(lambda ms: timedelta(milliseconds=ms))


@pytest.mark.parametrize(
    ("text", "hours"),
    [
        ("30m", 0.5),
        ("6h", 6),
        ("2d12h", 60),
        ("12h2d", 60),
        ("1d30m", 24.5),
        ("1h1h", 2),
        ("1m1m1m", 0.05),
        ("365d", 8760),
        ("90m", 1.5),
        ("01h", 1),
        ("00000000000000000001h", 1),
        ("36500d", 876_000),
    ],
)
def test_a_duration_is_the_sum_of_its_parts(text: str, hours: float) -> None:
    assert parse_duration(text) == timedelta(hours=hours)


@pytest.mark.parametrize(
    ("text", "milliseconds"), [("100ms", 100), ("10s", 10_000), ("1m500ms", 60_500), ("1s1ms", 1_001)]
)
def test_fine_units_are_read_where_they_are_asked_for(text: str, milliseconds: int) -> None:
    assert parse_duration(text, units=FINE_UNITS) == timedelta(milliseconds=milliseconds)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("", "empty"),
        ("2d12", "no unit after 12"),
        ("0", "no unit after 0"),
        ("h", "no number before 'h'"),
        ("d2", "no number before 'd'"),
        ("inf", "no number"),
        ("1w", "unknown unit 'w'"),
        ("2d12hh", "unknown unit 'hh'"),
        ("2D", "in capitals"),
        ("2d12H", "in capitals"),
        ("500ms", "too fine"),
        ("30s", "too fine"),
        ("-1h", "sign"),
        ("+1h", "sign"),
        ("1d-2h", "sign"),
        ("\N{MINUS SIGN}1h", "sign"),
        ("1.5h", "fraction"),
        ("1e9d", "scientific notation"),
        ("2d 12h", "blank"),
        (" 2d", "blank"),
        ("6h\n", "line break"),
        ("2d,12h", "separator"),
        ("01:30", "separator"),
        ("1_000m", "separator"),
        ("0h", "is zero"),
        ("1h0m", "part of zero, '0m'"),
        ("000d1h", "part of zero"),
        ("P2D", "ISO 8601"),
        ("PT30M", "ISO 8601"),
        ("\N{ARABIC-INDIC DIGIT SIX}h", "digits other than 0 to 9"),
        ("36501d", "longer than 100 years"),
        ("36500d1m", "longer than 100 years"),
        ("9" * 5000 + "d", "longer than 100 years"),
        ("36500d" * 30_000, "longer than 100 years"),
    ],
)
def test_each_refusal_has_its_reason(value: str, reason: str) -> None:
    with pytest.raises(DurationError, match=reason) as caught:
        parse_duration(value)

    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("value", [3600, 0, 1.5, float("nan")])
def test_a_bare_number_is_refused_because_it_has_no_unit(value: float) -> None:
    with pytest.raises(DurationError, match="a bare number has no unit"):
        parse_duration(value)


@pytest.mark.parametrize("value", [True, None, [], {}, b"6h", object(), ("6h",)])
def test_other_kinds_of_values_are_refused(value: object) -> None:
    with pytest.raises(DurationError, match="expected a duration such as '2d12h', got"):
        parse_duration(value)


def test_a_timedelta_is_taken_as_it_is_also_where_text_is_coarser() -> None:
    assert parse_duration(timedelta(seconds=90), units=WINDOW_UNITS) == timedelta(seconds=90)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (timedelta(), "not longer than zero"),
        (timedelta(hours=-1), "not longer than zero"),
        (timedelta.max, "longer than 100 years"),
        (timedelta(microseconds=1500), "fraction of a millisecond"),
    ],
)
def test_a_timedelta_has_the_limits_of_text(value: timedelta, reason: str) -> None:
    with pytest.raises(DurationError, match=reason):
        parse_duration(value)


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(hours=60), "2d12h"),
        (timedelta(minutes=90), "1h30m"),
        (timedelta(milliseconds=100), "100ms"),
        (timedelta(seconds=60), "1m"),
        (timedelta(), "0ms"),
    ],
)
def test_a_duration_is_written_largest_unit_first(duration: timedelta, text: str) -> None:
    assert format_duration(duration) == text


@given(durations)
def test_what_is_written_is_read_back(duration: timedelta) -> None:
    assert parse_duration(format_duration(duration), units=FINE_UNITS) == duration


@given(st.lists(st.tuples(st.integers(1, 1000), st.sampled_from("dhm")), min_size=1, max_size=10))
def test_order_and_repetition_do_not_matter(parts: list[tuple[int, str]]) -> None:
    forwards = "".join(f"{number}{unit}" for number, unit in parts)
    backwards = "".join(f"{number}{unit}" for number, unit in reversed(parts))

    assert parse_duration(forwards) == parse_duration(backwards)


@given(st.text(max_size=20))
def test_any_text_is_a_duration_or_refused(text: str) -> None:
    with suppress(DurationError):
        assert timedelta() < parse_duration(text, units=FINE_UNITS) <= LONGEST
