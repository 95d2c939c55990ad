"""Clocks that jump, told by a file by how much.

The server gets libfaketime in front of it. Python cannot sleep under that (its clock_nanosleep is
refused), so beats have the file read by the clock of the test project.
"""

from __future__ import annotations

from pathlib import Path

from tests.services import missing

_PLACES = ("/usr/lib/*/faketime/libfaketime.so.1", "/usr/lib*/faketime/libfaketime.so.1")


class FakedTime:
    """How far a program's wall clock is off. Its monotonic clock goes on as ever, as at a real jump."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.jump(0)

    def jump(self, seconds: float) -> None:
        """To so many seconds after the real time, or before it; whole or not."""
        draft = self.file.with_suffix(".draft")
        draft.write_text(f"{seconds:+.3f}\n")
        draft.rename(self.file)

    @property
    def for_a_server(self) -> dict[str, str]:
        """What the server has to find in its environment."""
        found = [path for place in _PLACES for path in sorted(Path("/").glob(place[1:]))]
        return {
            "LD_PRELOAD": str(found[0]) if found else missing("faketime", "libfaketime is not installed"),
            "FAKETIME_TIMESTAMP_FILE": str(self.file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    @property
    def for_a_beat(self) -> dict[str, str]:
        """What a beat has to find in its environment."""
        return {"CATCHUP_TEST_JUMPS": str(self.file)}
