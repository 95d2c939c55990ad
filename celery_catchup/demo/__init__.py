"""The demo: an outage of beat and its recovery, played with real processes on a server of its own."""

from celery_catchup.demo.story import play

__all__ = ["play"]
