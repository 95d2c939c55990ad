"""Tasks that do more than their run: groups and chords inside, and one that takes its time."""

from __future__ import annotations

import json
import os
import time
from typing import Any

from celery import chord, group

from celery_catchup import current_run
from tests.projects.declared import app


@app.task(bind=True)
def outer(self: Any) -> None:
    """Start a group and a chord, as a task without a run could."""
    _note("outer", current_run() is not None)
    group(inner.s("group"), inner.s("group")).apply_async()
    chord([inner.s("chord"), inner.s("chord")], after.s()).apply_async()


@app.task
def inner(where: str) -> str:
    _note(where, current_run() is not None)
    return where


@app.task
def after(results: list[str]) -> None:
    _note("after", current_run() is not None)


@app.task(bind=True, acks_late=True)
def slow(self: Any) -> None:
    """Longer than kombu waits before it looks for messages to deliver again, every ten seconds."""
    _note("begin", self.request.scheduled_time)
    time.sleep(12)
    _note("end", self.request.scheduled_time)


def _note(what: str, told: object) -> None:
    with open(os.environ["CATCHUP_TEST_DIARY"], "a", buffering=1, encoding="utf-8") as diary:
        diary.write(json.dumps([what, told]) + "\n")
