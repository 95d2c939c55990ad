"""The time axis of a drawing: the place of a time, the labels of the hours or days, and the grid."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from celery_catchup.flower.markup import IN_UTC, Markup, Times, element, percent

# Hours between two labels; the first step with few enough labels is used.
_STEPS = (1, 2, 3, 6, 12, 24)
MOST_LABELS = 9
_FIRST_LABEL, _LAST_LABEL = 0.02, 0.97  # of the width; a label further out would overlap its neighbour
_HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """The time from ``since`` to ``until``, left to right; labels are in the zone of ``times``."""

    since: datetime
    until: datetime
    times: Times = IN_UTC

    def share(self, moment: datetime) -> float:
        """Return the place of a time: 0 is the left edge, 1 the right; times outside are on an edge."""
        return min(1.0, max(0.0, (moment - self.since) / (self.until - self.since)))

    def overlaps(self, since: datetime, until: datetime) -> bool:
        """Whether a part of that time is on the axis."""
        return since < self.until and until > self.since

    def hours(self) -> list[datetime]:
        """Return the full hours that have labels, in the zone."""
        whole = (self.until - self.since) / _HOUR
        step = next((step for step in _STEPS if whole / step <= MOST_LABELS), 24)
        local = self.times.at(self.since)
        first = self.since - timedelta(
            minutes=local.minute, seconds=local.second, microseconds=local.microsecond
        )
        hours = (first + count * _HOUR for count in range(int(whole) + 2))
        return [
            shown
            for hour in hours
            if (shown := self.times.at(hour)).hour % step == 0 and self.since <= hour <= self.until
        ]


def hour_labels(axis: TimeAxis, *, days: bool = True) -> Markup:
    """Draw the hours above or below drawings with the same axis; with ``days``, midnight has its day."""
    hours = axis.hours()
    labels = [
        element(
            "text",
            f"{hour:%a %d}" if days and hour.hour == 0 else f"{hour:%H:%M}",
            x=percent(axis.share(hour)),
            y=11,
            text_anchor="middle" if axis.share(hour) > _FIRST_LABEL else "start",
        )
        for hour in hours
        if axis.share(hour) < _LAST_LABEL
    ]
    return element("svg", *labels, class_="cu-axis", height=14, width="100%", aria_hidden="true")


def grid(axis: TimeAxis, height: int) -> list[Markup]:
    """Draw a faint line at each hour that has a label."""
    places = [percent(axis.share(hour)) for hour in axis.hours()]
    return [element("line", x1=place, x2=place, y1=0, y2=height, class_="cu-grid") for place in places]
