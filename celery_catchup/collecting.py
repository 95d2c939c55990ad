"""Collecting: when Python may look for garbage that is left over in circles."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collected_later() -> Iterator[None]:
    """Not inside this block, in which thousands of values are made, and most of them kept: each time so
    many more are there, all of them would be looked at."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
