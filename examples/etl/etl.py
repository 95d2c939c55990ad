"""Load hourly sales: a task that loads exactly the hour of its slot, however late it runs.

Try it with a Redis on localhost, each command in its own terminal::

    celery -A etl worker
    celery -A etl beat
    celery -A etl catchup backfill hourly-sales --start '6h ago' --end now --reprocess completed

The last one runs six hours again. The tables do not change: every write is an upsert.
"""

import os

from celery import Celery
from celery.schedules import crontab
from warehouse import COPY_ORDER, KEEP_SALES, open_warehouse

from celery_catchup import current_run

PAGE = 100
"""Orders per batch; the next attempt does not copy a finished batch again."""

app = Celery("etl", broker=os.environ.get("CELERY_BROKER_URL", "redis://localhost:6379/0"))
app.conf.update(
    beat_scheduler="celery_catchup.Scheduler",
    imports=["celery_catchup.worker"],
    beat_schedule={"hourly-sales": {"task": "etl.load_hour", "schedule": crontab(minute=0)}},
    catchup_entries={
        # Every hour of the last two days, one after the other; a failed one is tried three times.
        "hourly-sales": {"window": "2d", "overlap_policy": "all", "max_attempts": 3, "retry_delay": "30s"}
    },
)


@app.task(name="etl.load_hour")
def load_hour() -> dict[str, int]:
    """Copy the orders of one hour, and add them up."""
    run = current_run()
    if run is None:
        raise RuntimeError("load_hour needs a slot; start it with: celery -A etl catchup run hourly-sales")
    begin, end = (moment.strftime("%Y-%m-%dT%H:%M:%SZ") for moment in run.data_interval)
    with open_warehouse() as warehouse:
        after = run.checkpoints.get("copied", 0)  # where an attempt before this one stopped
        while page := warehouse.read(
            "SELECT id, at, amount FROM shop_orders WHERE at >= ? AND at < ? AND id > ? ORDER BY id LIMIT ?",
            begin,
            end,
            after,
            PAGE,
        ):
            run.check()  # another worker may have taken over while this one was frozen
            warehouse.write(COPY_ORDER, page)
            after = page[-1][0]
            run.checkpoint("copied", after)
        ((orders, amount),) = warehouse.read(
            "SELECT COUNT(*), COALESCE(SUM(amount), 0) FROM orders WHERE at >= ? AND at < ?", begin, end
        )
        run.check()
        warehouse.write(KEEP_SALES, [(begin, orders, amount, run.run_id)])
    run.output("hour", begin)
    return {"orders": orders, "amount": amount}
