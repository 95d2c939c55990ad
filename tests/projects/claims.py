"""A project with the worker plugin, for tests that start real workers.

Its tasks write what they do to a file, one line each: what happened is not asked of the
package under test.
"""

from __future__ import annotations

import json
import os
import signal
import time
from typing import Any

from celery import Celery, Task, group, shared_task
from celery.exceptions import Ignore, Reject

import celery_catchup
from celery_catchup import current_run
from celery_catchup.worker_plugin import claims, worker_process

app = Celery("claims")
app.conf.update(json.loads(os.environ.get("CLAIMS_CONF", "{}")))
if os.environ.get("CLAIMS_BY_HAND"):
    celery_catchup.install(app)
elif not os.environ.get("CLAIMS_PLAIN"):
    app.conf.imports = ["celery_catchup.worker"]

if countdown := os.environ.get("CLAIMS_COUNTDOWN"):
    claims._COUNTDOWN = (float(countdown), float(countdown))
    claims._STORE_PAUSES = (0.1, 0.1)

if renew := os.environ.get("CLAIMS_RENEW"):
    worker_process._RENEW_RECEIVED = float(renew)


def write(what: str, **facts: Any) -> None:
    run = current_run()
    line = {"what": what, "pid": os.getpid(), "at": time.monotonic(), **facts}
    if run is not None:
        line |= {"run_id": run.run_id, "attempt": run.attempt, "entry": run.entry}
    with open(os.environ["CLAIMS_LOG"], "a") as log:
        log.write(json.dumps(line) + "\n")


class Hooked(Task):
    """A base with hooks of its own."""

    def before_start(self, task_id: str, args: Any, kwargs: Any) -> None:
        write("hook")


@app.task
def work(seconds: float = 0.0, fail: bool = False) -> str:
    write("start")
    time.sleep(seconds)
    if fail:
        raise ValueError("it did not work\nat all")
    write("end")
    return "done"


@app.task(base=Hooked, bind=True)
def hooked(self: Task) -> None:
    write("start", task_id=self.request.id)


@shared_task
def shared() -> None:
    write("start")


class ByClass(Hooked):
    name = "tests.projects.claims.by_class"

    def run(self) -> None:
        write("start")


app.register_task(ByClass())


@app.task
def tell() -> None:
    run = current_run()
    assert run is not None
    write(
        "told",
        scheduled_time=run.scheduled_time.isoformat(),
        interval=[str(moment) for moment in run.data_interval],
        is_catchup=run.is_catchup,
        trigger=str(run.trigger),
        attempt_id=run.attempt_id,
        lag=run.lag.total_seconds(),
        environ={name: value for name, value in os.environ.items() if _is_of_the_run(name)},
    )


@app.task
def child() -> None:
    write("child")


@app.task(bind=True)
def passing_on(self: Task, parent: bool = True) -> None:
    """Sends children with its own headers, one of them of its own name."""
    if not parent:
        write("child")
        return
    for send in (child, child):
        send.apply_async(headers=self.request.headers)
    hooked.apply_async(headers=self.request.headers)
    self.apply_async(kwargs={"parent": False}, headers=self.request.headers)


@app.task(bind=True)
def replacing(self: Task, by_group: bool = False, fail: bool = False) -> None:
    write("replaced")
    replacement = work.s(fail=fail)
    raise self.replace(group([replacement]) if by_group else replacement)


@app.task(bind=True, max_retries=3)
def retrying(self: Task, countdown: float = 0.0) -> None:
    write("start", retries=self.request.retries)
    if self.request.retries < 2:
        raise self.retry(countdown=countdown, exc=ValueError("again"))
    write("end")


@app.task(autoretry_for=(ValueError,), retry_backoff=False, default_retry_delay=0, max_retries=1)
def autoretrying() -> None:
    write("start")
    raise ValueError("always")


@app.task(acks_late=True, bind=True)
def rejecting(self: Task, requeue: bool) -> None:
    write("start")
    raise Reject("not now", requeue=requeue and not self.request.delivery_info["redelivered"])


@app.task
def ignoring() -> None:
    write("start")
    raise Ignore


@app.task(time_limit=1)
def overrunning() -> None:
    write("start")
    time.sleep(60)


@app.task
def dying() -> None:
    write("start")
    os.kill(os.getpid(), signal.SIGKILL)


def die_once() -> None:
    run = current_run()
    assert run is not None
    write("start")
    if run.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)


@app.task(acks_late=True, reject_on_worker_lost=True)
def redelivered() -> None:
    die_once()


@app.task(retry_on_worker_lost=True, default_retry_delay=0)
def revived() -> None:
    die_once()


@app.task
def checking(seconds: float) -> None:
    """Looks at its lease for a while."""
    run = current_run()
    assert run is not None
    write("start")
    until = time.monotonic() + seconds
    while time.monotonic() < until and not run.lost:
        time.sleep(0.05)
    write("end", lost=run.lost)
    run.check()


def _is_of_the_run(name: str) -> bool:
    """Whether a variable was set around the task, and not for the tests."""
    for_tests = ("CATCHUP_TEST", "CATCHUP_REQUIRE", "CATCHUP_CASES", "CATCHUP_DIFFERENTIAL", "CATCHUP_BEAT")
    return name.startswith("CATCHUP_") and not name.startswith(for_tests)
