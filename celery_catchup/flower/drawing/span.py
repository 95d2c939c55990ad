"""A span of time as a stretch of paper: where an instant lies, and which hours are written below."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from celery_catchup.flower.drawing.svg import Markup, element, percent

# Hours between two labels; the first that gives few enough of them is taken.
_STEPS = (1, 2, 3, 6, 12, 24)
MOST_LABELS = 9
_LAST_LABEL = 0.97  # of the width; one further right would reach into what stands there


@dataclass(frozen=True, slots=True)
class Span:
    """The time from ``since`` to ``until`` on paper."""

    since: datetime
    until: datetime

    @property
    def length(self) -> timedelta:
        """How long it is."""
        return self.until - self.since

    def share(self, moment: datetime) -> float:
        """Where the moment lies: 0 on the left edge, 1 on the right; what is outside is on an edge."""
        return min(1.0, max(0.0, (moment - self.since) / self.length))

    def meets(self, since: datetime, until: datetime) -> bool:
        """Whether some of that time is on the paper."""
        return since < self.until and until > self.since

    def hours(self) -> list[datetime]:
        """The full hours that are written, few enough to read; in UTC, as everything here."""
        first = self.since.replace(minute=0, second=0, microsecond=0)
        whole = self.length / timedelta(hours=1)
        step = next((step for step in _STEPS if whole / step <= MOST_LABELS), 24)
        hours = (first + timedelta(hours=count) for count in range(int(whole) + 2))
        return [hour for hour in hours if hour.hour % step == 0 and self.since <= hour <= self.until]


def axis(span: Span) -> Markup:
    """The hours below or above drawings of the same span."""
    labels = [
        element(
            "text",
            f"{hour:%H:%M}",
            x=percent(span.share(hour)),
            y=11,
            text_anchor="middle",
        )
        for hour in span.hours()
        if span.share(hour) < _LAST_LABEL
    ]
    return element("svg", *labels, class_="cu-axis", height=14, width="100%", aria_hidden="true")


def grid(span: Span, height: int) -> list[Markup]:
    """A faint line at each hour that the axis names."""
    return [
        element(
            "line",
            x1=percent(span.share(hour)),
            x2=percent(span.share(hour)),
            y1=0,
            y2=height,
            class_="cu-grid",
        )
        for hour in span.hours()
    ]
