"""In UTC croniter and cronsim give our slots, except where a named quirk of theirs predicts otherwise."""

from __future__ import annotations

import os
import random
from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest
from croniter import CroniterBadDateError, CroniterError, croniter
from cronsim import CronSim, CronSimError

from celery_catchup.model import to_datetime, to_instant
from celery_catchup.timetables.cron_dialects import parse_cron
from tests.property.expressions import expression, special_expression
from tests.property.library_quirks import QUIRKS, Fields, Library, Quirk

CASES = int(os.environ.get("CATCHUP_DIFFERENTIAL", "2000"))
SLOTS = 12
FAR = timedelta(days=30 * 366)
START = datetime(2024, 1, 1, tzinfo=UTC)

Slots = list[datetime] | None
"""The first few; None when the expression is refused."""


def our_slots(text: str, start: datetime) -> list[datetime]:
    after = to_instant(start)
    return list(
        map(to_datetime, islice(parse_cron(text, zone=UTC).slots(after, to_instant(start + FAR)), SLOTS))
    )


def croniter_slots(text: str, start: datetime) -> Slots:
    slots: list[datetime] = []
    try:
        dates = croniter(text, start)
        while len(slots) < SLOTS:
            slots.append(dates.get_next(datetime))
    except CroniterBadDateError:
        return slots  # it says that no date follows
    except CroniterError:
        return None
    return slots


def cronsim_slots(text: str, start: datetime) -> Slots:
    try:
        return list(islice(CronSim(text, start), SLOTS))
    except CronSimError:
        return None


LIBRARIES = {Library.CRONITER: croniter_slots, Library.CRONSIM: cronsim_slots}


def predict(library: Library, text: str, start: datetime) -> tuple[Slots, list[str]]:
    """What the library will answer, by our own reading and its quirks; and the quirks that matter."""
    fields: Fields | None = tuple(text.lower().split())
    reasons = []
    for quirk in QUIRKS:
        if quirk.library is library and fields is not None and (read := quirk.rewrite(fields)) != fields:
            reasons.append(quirk.reason)
            fields = read
    return (None if fields is None else our_slots(" ".join(fields), start)), reasons


def check(library: Library, text: str, start: datetime) -> None:
    theirs = LIBRARIES[library](text, start)
    if theirs:
        theirs = [slot for slot in theirs if slot <= start + FAR]
    ours = our_slots(text, start)
    if ours == theirs:
        return
    predicted, reasons = predict(library, text, start)
    assert predicted == theirs, (
        f"{text!r} in UTC after {start.isoformat()}: {library.value} differs, and no quirk says why"
        f" (tried: {'; '.join(reasons) or 'none applies'})\n"
        f"  ours      {_shown(ours)}\n  theirs    {_shown(theirs)}\n  predicted {_shown(predicted)}"
    )


@pytest.mark.parametrize("library", Library)
def test_every_difference_is_one_of_the_librarys_quirks(library: Library) -> None:
    for seed in range(CASES):
        rng = random.Random(seed)
        start = START + timedelta(minutes=rng.randrange(5 * 365 * 24 * 60))
        check(library, expression(rng), start)


@pytest.mark.parametrize("library", Library)
def test_names_of_days_such_as_l_w_and_nth_are_read_alike(library: Library) -> None:
    for seed in range(CASES // 2):
        rng = random.Random(f"special {seed}")
        start = START + timedelta(minutes=rng.randrange(5 * 365 * 24 * 60))
        check(library, special_expression(rng), start)


EXAMPLES = {
    "one_value_is_the_whole_field": "5-5 * * * *",
    "last_value_with_a_step_is_the_whole_field": "59/15 * * * *",
    "star_with_a_step_restricts_a_day_field": "0 0 */2 * 1",
    "star_in_a_list_of_days_is_a_star": "0 0 27,* * 6",
    "nth_weekday_hides_the_day_of_month": "0 0 25 * L3",
    "nearest_weekday_hides_the_day_of_week": "0 0 15W * 1",
    "impossible_date_hides_the_day_of_week": "0 0 31 2 1",
    "one_value_with_a_step_is_open_ended": "5-5/15 * * * *",
    "open_ended_steps_reach_the_second_sunday": "0 0 * * 5/2",
    "impossible_date_is_refused": "0 0 30 2 *",
    "backwards_range_is_refused": "0 0 * * fri-mon",
    "form_is_unknown": "0 0 15W * *",
}


@pytest.mark.parametrize("quirk", QUIRKS, ids=lambda quirk: quirk.rewrite.__name__)
def test_each_quirk_is_still_there(quirk: Quirk) -> None:
    text = EXAMPLES[quirk.rewrite.__name__]

    ours, theirs = our_slots(text, START), LIBRARIES[quirk.library](text, START)

    assert ours != theirs, f"{quirk.library.value} has dropped a quirk: {quirk.reason}"
    assert predict(quirk.library, text, START) == (theirs, [quirk.reason])


def _shown(slots: Slots) -> str:
    return "refused" if slots is None else ", ".join(f"{slot:%Y-%m-%dT%H:%M}" for slot in slots[:5]) or "none"
