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


def keep_what_is_there() -> None:
    """What lives now is taken to live on, and is not looked at again: with thousands of entries each look
    at all of it would make slots late. Garbage of the start goes first."""
    gc.collect()
    gc.freeze()


def let_go_of_it() -> None:
    """What was kept may be garbage by now."""
    gc.unfreeze()
