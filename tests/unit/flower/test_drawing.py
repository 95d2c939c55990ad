"""The drawings of the Catch-up tab: places, words, and escaping."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from celery_catchup.error_text import counted
from celery_catchup.flower.drawing.captions import caption
from celery_catchup.flower.drawing.glyphs import GLYPHS, legend
from celery_catchup.flower.drawing.heat import columns_for, days_until, draw_heat_map
from celery_catchup.flower.drawing.lanes import DownTime, draw_lane, merge_touching
from celery_catchup.flower.drawing.starts import draw_starts
from celery_catchup.flower.drawing.time_axis import MOST_LABELS, TimeAxis, hour_labels
from celery_catchup.flower.markup import Times, duration, element, percent
from celery_catchup.model import SlotMark, to_instant
from celery_catchup.operations.timeline import WORST_FIRST, TimelineSlots, _merge, _Piece

NOON = datetime(2026, 2, 7, 12, tzinfo=UTC)
DAY = TimeAxis(NOON - timedelta(days=1), NOON)


def one(hours_ago: float, mark: str = "on_time", **more: Any) -> TimelineSlots:
    at = NOON - timedelta(hours=hours_ago)
    return TimelineSlots(at, at, 1, SlotMark(mark), **more)


def several(first: float, last: float, count: int, mark: str = "on_time", **more: Any) -> TimelineSlots:
    """Slots between two times, both in hours ago."""
    return TimelineSlots(
        NOON - timedelta(hours=first), NOON - timedelta(hours=last), count, SlotMark(mark), **more
    )


def every(minutes: int) -> list[TimelineSlots]:
    return [one(back / 60) for back in range(24 * 60, -1, -minutes)]


def drawn(markup: str) -> ET.Element:
    return ET.fromstring(f"<all>{markup}</all>")


def shapes(markup: str, kind: str) -> list[ET.Element]:
    return [part for part in drawn(markup).iter() if f"cu-{kind}" in part.get("class", "").split()]


def test_a_slot_lies_where_its_time_is_on_the_axis() -> None:
    quarter = draw_lane(DAY, [one(6)])

    assert drawn(quarter).find("svg/svg").get("x") == "75%"  # type: ignore[union-attr]
    assert (DAY.share(DAY.since), DAY.share(DAY.until)) == (0, 1)
    assert DAY.share(NOON + timedelta(days=9)) == 1


def test_a_lane_says_in_words_what_it_shows() -> None:
    words = drawn(draw_lane(DAY, [one(3), one(2), one(1, "caught_up")], name="etl")).find("span")

    assert words is not None
    assert words.text == "etl: 3 slots: 2 on time, 1 caught up late"
    assert caption([]) == "no slots"


def test_slots_that_would_touch_are_one_bar_that_counts_them() -> None:
    minutely = every(1)

    (bar,) = merge_touching(DAY, minutely)

    assert bar.count == len(minutely)
    assert len(shapes(draw_lane(DAY, minutely), "many")) == 1


def test_merged_slots_of_several_marks_show_the_worst_and_count_all() -> None:
    hour = several(1, 0, 61, "failed", counts={"on_time": 59, "failed": 2})

    drawing = draw_lane(DAY, [hour])

    assert len(shapes(drawing, "failed")) == 1
    assert drawing.count("59 on time, 2 failed") == 2  # its title, and the lane in words


def test_slots_of_another_kind_are_never_merged_away() -> None:
    slots = every(1)
    slots[700] = replace(slots[700], mark="failed")

    assert len(shapes(draw_lane(DAY, slots), "failed")) == 1


def test_slots_with_room_between_them_are_drawn_one_by_one() -> None:
    assert len(shapes(draw_lane(DAY, every(15)), "on_time")) == len(every(15))


def test_slots_recorded_together_are_spread_over_their_time() -> None:
    span = several(4, 1, 4, "skipped", reason="superseded")

    assert len(shapes(draw_lane(DAY, [span]), "skipped")) == span.count


def test_a_band_shows_where_beat_was_down_also_when_it_still_is() -> None:
    over = DownTime(NOON - timedelta(hours=12), NOON - timedelta(hours=6))
    still = DownTime(NOON - timedelta(hours=3), None)
    before = DownTime(NOON - timedelta(days=3), NOON - timedelta(days=2))

    bands = shapes(draw_lane(DAY, [], down_times=[before, over, still]), "band")

    assert [(band.get("x"), band.get("width")) for band in bands] == [("50%", "25%"), ("87.5%", "12.5%")]


def test_every_mark_has_a_shape_and_words_of_its_own() -> None:
    # A missed slot is the bar of one on time, hollow and dashed.
    paths = [glyph.path for mark, glyph in GLYPHS.items() if mark is not SlotMark.MISSED]

    assert len(set(paths)) == len(paths)
    assert len({glyph.words for glyph in GLYPHS.values()}) == len(GLYPHS)
    assert set(WORST_FIRST) == set(GLYPHS) == set(SlotMark)


def test_the_legend_names_what_is_drawn() -> None:
    words = "".join(drawn(legend(GLYPHS)).itertext())

    assert all(glyph.words in words for glyph in GLYPHS.values())
    assert "beat was down" in words


@pytest.mark.parametrize("hours", [1, 6, 24, 48, 168])
def test_an_axis_has_few_enough_labels_to_be_read(hours: int) -> None:
    labels = drawn(hour_labels(TimeAxis(NOON - timedelta(hours=hours), NOON))).findall("svg/text")

    assert 1 <= len(labels) <= MOST_LABELS + 1


def test_a_heat_map_has_a_row_for_each_day_and_a_cell_for_each_slot() -> None:
    days = days_until(NOON, 7)
    hourly = [one(back) for back in range(6 * 24)]

    rows = draw_heat_map(days, hourly, columns=columns_for(24))

    assert len(rows) == len(days)
    assert len(shapes(rows[-2].drawing, "cell")) == 24
    assert rows[-1].day == "Sat 07"
    assert sum(len(shapes(row.drawing, "on_time")) for row in rows) == len(hourly)


def test_a_cell_of_several_slots_shows_the_worst_of_them() -> None:
    days = days_until(NOON, 1)
    minutely = [one(back / 60, "failed" if back == 90 else "on_time") for back in range(720)]

    (row,) = draw_heat_map(days, minutely, columns=columns_for(1440))

    assert len([cell for cell in shapes(row.drawing, "failed") if cell.tag == "rect"]) == 1


@pytest.mark.parametrize(("worse", "better"), list(pairwise(WORST_FIRST)))
def test_a_cell_and_a_merged_stretch_of_the_timeline_show_the_same_of_two_marks(
    worse: SlotMark, better: SlotMark
) -> None:
    both = [_Piece(to_instant(NOON), to_instant(NOON), 1, mark) for mark in (better, worse)]

    (row,) = draw_heat_map(days_until(NOON, 1), [one.shown() for one in both], columns=columns_for(24))
    (stretch,) = _merge(both, most=1, near=1)

    assert [cell for cell in shapes(row.drawing, stretch.mark) if cell.tag == "rect"]
    assert stretch.mark is worse


def test_a_cell_and_a_day_count_only_their_own_slots() -> None:
    days = days_until(NOON, 2)
    minutely = several(36, 0, 36 * 60 + 1, "failed", counts={"on_time": 36 * 60 - 59, "failed": 60})

    before, after = draw_heat_map(days, [minutely], columns=96)

    assert "Friday 06 February: 1,440 slots:" in before.drawing
    assert "Saturday 07 February: 721 slots:" in after.drawing
    titles = [title.text or "" for title in drawn(before.drawing).iter("title")]
    assert {title.split()[0] for title in titles} == {"15"}


def test_a_day_of_a_heat_map_begins_at_midnight_of_the_readers_zone() -> None:
    berlin = Times(ZoneInfo("Europe/Berlin"))

    (before, today) = days_until(NOON + timedelta(hours=11, minutes=30), 2, berlin)

    assert f"{today.since:%m-%d %H:%M}" == "02-07 23:00"  # the 8th has begun in Berlin
    assert before.until == today.since


def test_times_carry_the_readers_zone() -> None:
    berlin = Times(ZoneInfo("Europe/Berlin"), now=NOON)

    assert (Times().stamp(NOON), berlin.stamp(NOON)) == ("2026-02-07 12:00Z", "2026-02-07 13:00+01:00")
    assert drawn(berlin.slot_time(NOON)).findtext("time") == "2026-02-07 13:00"
    shown = [berlin.short(NOON + timedelta(days=days)) for days in (0, 1, 365)]
    assert [drawn(one).findtext("time") for one in shown] == ["13:00", "02-08 13:00", "2027-02-07 13:00"]
    assert [f"{hour:%H}" for hour in TimeAxis(NOON, NOON + timedelta(hours=3), berlin).hours()] == [
        "13",
        "14",
        "15",
        "16",
    ]


def test_a_slot_at_midnight_belongs_to_the_day_that_begins() -> None:
    days = days_until(NOON, 2)

    before, after = draw_heat_map(days, [one(12)], columns=24)

    assert (len(shapes(before.drawing, "on_time")), len(shapes(after.drawing, "on_time"))) == (0, 1)


def test_the_line_of_a_late_start_leans() -> None:
    punctual = one(6, started_at=NOON - timedelta(hours=6))
    late = one(12, "caught_up", started_at=NOON - timedelta(hours=6))

    lines = shapes(draw_starts(DAY, [punctual, late]), "line")

    assert [(line.get("x1"), line.get("x2")) for line in lines] == [("75%", "75%"), ("50%", "75%")]


def test_a_run_that_has_not_started_has_no_line() -> None:
    assert shapes(draw_starts(DAY, [one(6, "missed")]), "line") == []


def test_merged_slots_are_an_area_down_to_the_starts_only_when_on_time() -> None:
    (punctual,) = shapes(draw_starts(DAY, [several(12, 6, 360)]), "area")
    (skipped,) = shapes(draw_starts(DAY, [several(12, 6, 360, "skipped")]), "area")

    assert [punctual.get("x"), punctual.get("width")] == ["50%", "25%"]
    assert int(punctual.get("height", "0")) > int(skipped.get("height", "0"))


def test_text_never_becomes_markup() -> None:
    evil = "<script>alert('\"&')</script>"

    made = draw_lane(
        DAY, [one(1, reason=evil, run_id=evil)], name=evil, href=lambda first, last, run: f"/run/{run}"
    )
    made += element("p", evil, title=evil)

    assert "<script" not in made
    assert drawn(made).find("p").text == evil  # type: ignore[union-attr]


def test_percentages_have_no_trailing_zeros() -> None:
    assert [percent(share) for share in (0, 0.5, 1, 1 / 3)] == ["0%", "50%", "100%", "33.33%"]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.7, "0.7 s"),
        (59.96, "1m 00s"),
        (724, "12m 04s"),
        (10980, "3h 03m"),
        (187200, "2d 4h"),
        (-2, "-2.0 s"),
    ],
)
def test_durations_are_rounded_to_two_units(seconds: float, words: str) -> None:
    assert duration(timedelta(seconds=seconds)) == words


def test_a_timestamp_has_its_exact_time() -> None:
    time = drawn(Times().timestamp(NOON)).find("time")

    assert time is not None
    assert (time.text, time.get("datetime")) == ("2026-02-07 12:00:00", "2026-02-07T12:00:00Z")
    assert drawn(Times().timestamp(None)).find("time") is None
    assert (counted(1, "run"), counted(1440, "slot")) == ("1 run", "1,440 slots")
