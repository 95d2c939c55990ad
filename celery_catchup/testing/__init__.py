"""Test your own schedules: a clock under your control, a beat that ticks by hand, a private server.

May import everything but the edges. Start reading in `manual_beat.py`. The fixtures are in
`celery_catchup.pytest_plugin`.
"""

from celery_catchup.testing.embedded_server import EmbeddedServer
from celery_catchup.testing.fake_clock import FakeClock
from celery_catchup.testing.manual_beat import ManualBeat

__all__ = ["EmbeddedServer", "FakeClock", "ManualBeat"]
