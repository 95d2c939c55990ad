"""Beats that a test leaves open are closed here."""

from tests.integration.conftest import _close_beats, desk_clock

__all__ = ["_close_beats", "desk_clock"]
