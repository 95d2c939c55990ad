"""Ask the workers in a thread of its own, and keep their answer for a few seconds: no request asks alone."""

from __future__ import annotations

import copy
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any
from weakref import WeakKeyDictionary

from celery_catchup.operations import Operator
from celery_catchup.operations.fleet import Fleet, ask_fleet

ASK_EVERY = 6.0
"""Seconds between two questions, while pages ask for it."""
OLDEST = 12.0
"""Seconds for which an answer is shown; an older one says nothing about now."""
PATIENCE = 5.0
"""Seconds that a request waits for an answer."""

_answers: WeakKeyDictionary[Any, tuple[float, Fleet]] = WeakKeyDictionary()
_questions: WeakKeyDictionary[Any, Future[Fleet]] = WeakKeyDictionary()
_lock = threading.Lock()
_thread = ThreadPoolExecutor(1, thread_name_prefix="celery-catchup-fleet")


def latest_fleet(operator: Operator, *, wait: bool = False) -> Fleet | None:
    """Return what the workers have answered lately, and ask them again if that is a while ago.

    Without an answer it is None; with ``wait``, it waits for one instead.
    """
    app, now = operator.app, time.monotonic()
    with _lock:
        at, fleet = _answers.get(app, (-OLDEST, None))
        question = _questions.get(app)
        if now - at >= ASK_EVERY and (question is None or question.done()):
            question = _questions[app] = _thread.submit(_ask, copy.copy(operator))
    if now - at < OLDEST:
        return fleet
    if question is None or not wait:
        return None
    try:
        return question.result(PATIENCE)
    except TimeoutError:
        return None


def _ask(operator: Operator) -> Fleet:
    fleet = ask_fleet(operator)
    _answers[operator.app] = time.monotonic(), fleet
    return fleet
