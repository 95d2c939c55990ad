"""Keep up to where each entry is decided in a small local file, in case the server loses it.

A running beat remembers this itself. A restarted one could not distinguish a server that has lost
everything from a first start. The file is off unless ``catchup_mirror_file`` names its path.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path

from celery_catchup.events.log_lines import logfmt
from celery_catchup.model import Instant

logger = logging.getLogger(__name__)

EVERY = 10.0
"""Seconds between two writes; slots of that time may be decided again, under the same run ids."""
_LARGEST = 64 * 2**20
"""Bytes; a larger file was not written by this class."""


class WatermarkFile:
    """One file, readable by its owner only, replaced as a whole. A failure to use it does not stop beat."""

    def __init__(self, path: Path, *, namespace: str, monotonic: Callable[[], float]) -> None:
        self._path, self._namespace, self._monotonic = path, namespace, monotonic
        self._due, self._failing = 0.0, False

    def keep(self, decided: Callable[[], Mapping[str, Instant]]) -> None:
        """Write the file, if a write is due."""
        if self._monotonic() < self._due:
            return
        self._due = self._monotonic() + EVERY
        try:
            self._replace(json.dumps({"namespace": self._namespace, "decided": decided()}))
        except OSError as error:
            if not self._failing:
                logger.warning(logfmt("Watermark file cannot be written", file=self._path, error=str(error)))
            self._failing = True
        else:
            self._failing = False

    def recall(self) -> dict[str, Instant] | None:
        """Read what was written last; None when the file is missing or cannot be trusted."""
        try:
            found = json.loads(self._read())
            if found["namespace"] != self._namespace:
                raise ValueError(f"it is of namespace {str(found['namespace'])[:40]!r}")
            return {str(name): _instant(at) for name, at in found["decided"].items()}
        except FileNotFoundError:
            return None
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            logger.warning(logfmt("Watermark file is ignored", file=self._path, error=str(error)))
            return None

    def _replace(self, text: str) -> None:
        beside = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        with contextlib.suppress(FileNotFoundError):
            beside.unlink()
        place = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with open(place, "w", encoding="utf-8") as file:
                file.write(text)
            # A link in its place is replaced, not followed.
            beside.replace(self._path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise

    def _read(self) -> str:
        # A pipe in its place must not block beat.
        place = os.open(self._path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
        with open(place, "rb") as file:
            _check_trusted(os.fstat(place))
            return file.read().decode("utf-8")


def _check_trusted(found: os.stat_result) -> None:
    """Raise `ValueError` when another user may have written the file, or it is not a file."""
    if not stat.S_ISREG(found.st_mode):
        raise ValueError("it is not a regular file")
    if hasattr(os, "geteuid") and found.st_uid != os.geteuid():
        raise ValueError(f"it belongs to user {found.st_uid}, not to the user of beat")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ValueError("other users can write it; expected mode 0600")
    if found.st_size > _LARGEST:
        raise ValueError("it is too large")


def _instant(value: object) -> Instant:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{str(value)[:40]!r} is not a time")
    return value
