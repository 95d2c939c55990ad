"""Functions that a test's ``for_each`` asks for values."""

from __future__ import annotations

import threading
from collections.abc import Callable

answer: Callable[[], object] = list
"""What `active` does; a test replaces it."""
free = threading.Event()


def active() -> object:
    return answer()


def hang() -> object:
    """Answer nothing until the test is over."""
    free.wait(60)
    return []
