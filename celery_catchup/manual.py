"""Keep version 0.1's path to `celery_catchup.testing.ManualBeat`."""

from celery_catchup.testing.manual_beat import ManualBeat

__all__ = ["ManualBeat"]
