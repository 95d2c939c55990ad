"""For tests of your own schedules: a clock under your control, a beat that ticks by hand, a private server.

May import everything but the edges. Start reading in `manual_beat.py`. The fixtures are in
`celery_catchup.pytest_plugin`.
"""

from typing import TYPE_CHECKING, Any

from celery_catchup.testing.fake_clock import FakeClock

if TYPE_CHECKING:
    from celery_catchup.testing.embedded_server import EmbeddedServer
    from celery_catchup.testing.manual_beat import ManualBeat

__all__ = ["EmbeddedServer", "FakeClock", "ManualBeat"]


def __getattr__(name: str) -> Any:
    """Load the heavier parts when they are asked for."""
    if name == "ManualBeat":
        from celery_catchup.testing.manual_beat import ManualBeat

        return ManualBeat
    if name == "EmbeddedServer":
        from celery_catchup.testing.embedded_server import EmbeddedServer

        return EmbeddedServer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
