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


_MANY = 1_000
"""Entries from which on it takes so long to look at all of them that slots are late."""


def keep_what_is_there(entries: int) -> None:
    """What lives now is taken to live on and is not looked at again, when there are many entries.
    Garbage of the start goes first."""
    if entries >= _MANY:
        gc.collect()
        gc.freeze()


def let_go_of_it(entries: int) -> None:
    """What was kept may be garbage by now. With few entries nothing was, and what others keep stays."""
    if entries >= _MANY:
        gc.unfreeze()
