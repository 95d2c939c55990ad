"""Declare every metric: name, labels and meaning, for the exporter, the reference page and the dashboard."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

PREFIX = "celery_catchup_"

LAG_BOUNDS = (1, 5, 15, 60, 300, 900, 3600, 14400, 86400, 604800)
"""Seconds: the buckets in which the store counts how late runs started; its scripts know the same."""

TICK_BOUNDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0)
"""Seconds: a tick without work takes about one millisecond, and one of five is too long for the lease."""


class MetricType(StrEnum):
    """The type of a metric in Prometheus."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """``name`` has neither the prefix nor a counter's ``_total``. ``in_beat``: a beat exports it about its
    own process, on its own port only."""

    name: str
    kind: MetricType
    help: str
    labels: tuple[str, ...] = ()
    in_beat: bool = False

    @property
    def family(self) -> str:
        """The name for a collector."""
        return PREFIX + self.name

    @property
    def exposed(self) -> str:
        """The name in queries, graphs and alerts."""
        return f"{self.family}_total" if self.kind is MetricType.COUNTER else self.family


_COUNTER, _GAUGE, _HISTOGRAM = MetricType.COUNTER, MetricType.GAUGE, MetricType.HISTOGRAM

METRICS: dict[str, Metric] = {
    one.name: one
    for one in (
        Metric("store_up", _GAUGE, "1 if the store answered, else 0; the others are missing then."),
        Metric("slots_dispatched", _COUNTER, "Slots that became a run, by trigger.", ("trigger",)),
        Metric("slots_skipped", _COUNTER, "Slots that were decided not to run, by reason.", ("reason",)),
        Metric("slots_missed", _COUNTER, "Slots that were late, whether they ran or not."),
        Metric("attempts_failed", _COUNTER, "Executions that failed, retried or not."),
        Metric("runs_ended", _COUNTER, "Runs that ended, by final state.", ("state",)),
        Metric("start_lag_seconds", _HISTOGRAM, "From a run's slot to its first start.", ("trigger",)),
        Metric("watermark_age_seconds", _GAUGE, "Age of the scheduler's watermark."),
        Metric("last_tick_age_seconds", _GAUGE, "Time since a leading beat last ticked."),
        Metric("leader", _GAUGE, "1 while a beat leads and ticks, else 0."),
        Metric("leader_terms", _COUNTER, "How often a beat has taken the lead."),
        Metric("catchup_running", _GAUGE, "1 while a catch-up is in progress."),
        Metric("catchup_slots_left", _GAUGE, "Slots that the current catch-up still has to decide."),
        Metric("chain_length", _GAUGE, "Runs of an entry that wait their turn.", ("entry",)),
        Metric("leases", _GAUGE, "Runs in flight: queued or running under a lease."),
        Metric("leases_overdue", _GAUGE, "Leases that have expired and are not handled yet."),
        Metric("retries_waiting", _GAUGE, "Failed runs that wait for their next attempt."),
        Metric("outbox_length", _GAUGE, "Runs that are decided and not published yet."),
        Metric("dead_letters", _GAUGE, "Dead runs that are neither replayed nor discarded."),
        Metric("entries_paused", _GAUGE, "Entries that are paused."),
        Metric("entries_held", _GAUGE, "Entries whose catch-up waits for an approval."),
        Metric("runs_held", _GAUGE, "Runs of these catch-ups, as counted when they were held."),
        Metric(
            "catchup_runs_active",
            _GAUGE,
            "Catch-up and backfill runs that are queued or running, where `catchup_max_active` limits them.",
        ),
        Metric("catchup_lanes_waiting", _GAUGE, "Entries and backfills that wait for a place among them."),
        Metric("entries_failing", _GAUGE, "Entries and backfills that fail and are being retried."),
        Metric("undecided_seconds", _GAUGE, "For how long the oldest due slot has been undecided, or 0."),
        Metric("overdue", _GAUGE, "Slots of an entry that have missed their deadline.", ("entry",)),
        Metric("last_success_age_seconds", _GAUGE, "Since a run of an entry succeeded.", ("entry",)),
        Metric("notifications_sent", _COUNTER, "Notifications that a receiver has accepted."),
        Metric("notifications_failed", _COUNTER, "Attempts to send a notification that failed."),
        Metric("notifications_dropped", _COUNTER, "Notifications that were given up after a day."),
        Metric("notifications_waiting", _GAUGE, "Notifications that wait to be sent."),
        Metric("workers", _GAUGE, "Workers with the plugin that were seen in the last ten minutes."),
        Metric("beat_leading", _GAUGE, "1 while this beat leads.", in_beat=True),
        Metric("tick_duration_seconds", _HISTOGRAM, "Duration of this beat's ticks.", in_beat=True),
        Metric("tick_errors", _COUNTER, "Ticks that failed.", ("what",), in_beat=True),
        Metric(
            "dispatch_errors", _COUNTER, "Entries that could not be dispatched.", ("entry",), in_beat=True
        ),
    )
}
"""By name, in the order of the reference page."""
