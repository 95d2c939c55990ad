"""What Celery does around a task, with and without the plugin, without any broker."""

from __future__ import annotations

import time
from typing import Any
from uuid import uuid4

from celery.app.trace import build_tracer

from benchmarks.subjects.trials import new_app
from celery_catchup.worker import install

_ROUNDS = 7


def trace(*, url: str, folder: str, plugin: bool, count: int) -> dict[str, float]:
    """Seconds of processor time per ordinary task, the best of several rounds."""
    app = new_app(url, folder, task_ignore_result=True)

    @app.task(name="benchmarks.nothing")
    def nothing() -> None:
        return None

    if plugin:
        install(app)
    app.finalize()
    tracer = build_tracer(nothing.name, nothing, app=app)
    return {"seconds": min(_round(tracer, count) for _ in range(_ROUNDS)) / count}


def _round(tracer: Any, count: int) -> float:
    requests = [{"id": str(uuid4()), "delivery_info": {}, "headers": None} for _ in range(count)]
    begun = time.process_time()
    for request in requests:
        tracer(request["id"], (), {}, request)
    return time.process_time() - begun
