"""The time axis of a drawing: the place of a time, the labels of the hours, and the grid."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from celery_catchup.flower.markup import Markup, element, percent

# Hours between two labels; the first step with few enough labels is used.
_STEPS = (1, 2, 3, 6, 12, 24)
MOST_LABELS = 9
_LAST_LABEL = 0.97  # of the width; a label further right would overlap what follows


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """The time from ``since`` to ``until``, left to right."""

    since: datetime
    until: datetime

    def share(self, moment: datetime) -> float:
        """Return the place of a time: 0 is the left edge, 1 the right; times outside are on an edge."""
        return min(1.0, max(0.0, (moment - self.since) / (self.until - self.since)))

    def overlaps(self, since: datetime, until: datetime) -> bool:
        """Whether a part of that time is on the axis."""
        return since < self.until and until > self.since

    def hours(self) -> list[datetime]:
        """Return the full hours in UTC that have labels."""
        first = self.since.replace(minute=0, second=0, microsecond=0)
        whole = (self.until - self.since) / timedelta(hours=1)
        step = next((step for step in _STEPS if whole / step <= MOST_LABELS), 24)
        hours = (first + timedelta(hours=count) for count in range(int(whole) + 2))
        return [hour for hour in hours if hour.hour % step == 0 and self.since <= hour <= self.until]


def hour_labels(axis: TimeAxis) -> Markup:
    """Draw the hours above or below drawings with the same axis."""
    labels = [
        element("text", f"{hour:%H:%M}", x=percent(axis.share(hour)), y=11, text_anchor="middle")
        for hour in axis.hours()
        if axis.share(hour) < _LAST_LABEL
    ]
    return element("svg", *labels, class_="cu-axis", height=14, width="100%", aria_hidden="true")


def grid(axis: TimeAxis, height: int) -> list[Markup]:
    """Draw a faint line at each hour that has a label."""
    places = [percent(axis.share(hour)) for hour in axis.hours()]
    return [element("line", x1=place, x2=place, y1=0, y2=height, class_="cu-grid") for place in places]
