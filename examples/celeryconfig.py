"""A beat schedule with one entry for each way to handle missed slots.

Try it: ``celery --config celeryconfig -A tasks beat`` from this directory, with a Redis on
localhost. Without ``beat_scheduler``, ``imports`` and the lines that begin with ``catchup_``, it is an
ordinary Celery configuration.
"""

from datetime import timedelta

from celery.schedules import crontab

broker_url = "redis://localhost:6379/0"
timezone = "Europe/Berlin"

beat_scheduler = "celery_catchup.Scheduler"
# Workers claim a run before they execute it, report its end, and release the next one.
imports = ["celery_catchup.worker"]

beat_schedule = {
    "hourly-etl": {"task": "tasks.etl", "schedule": crontab(minute=0)},
    "refresh-dashboard": {"task": "tasks.refresh", "schedule": crontab(minute="*/15")},
    "import-orders": {"task": "tasks.import_orders", "schedule": crontab(minute=30)},
    "nightly-report": {"task": "tasks.report", "schedule": "30 2 * * *"},
    "send-digest": {"task": "tasks.send_digest", "schedule": crontab(minute=0, hour="*/4")},
    "poll-inbox": {"task": "tasks.poll", "schedule": timedelta(seconds=30)},
    "thumbnails": {"task": "tasks.draw", "schedule": crontab(minute="*/10")},
    "reindex": {"task": "tasks.reindex", "schedule": crontab(minute="*/5")},
    "forecast": {"task": "tasks.forecast", "schedule": crontab(minute=30)},
    "heartbeat": {"task": "tasks.heartbeat", "schedule": 10.0},
}

catchup_entries = {
    # Data: every missed hour of the last six, strictly one after another, in order.
    "hourly-etl": {"window": "6h", "overlap_policy": "all"},
    # A view of the present: the newest missed slot is enough.
    "refresh-dashboard": {"window": "1d", "select": "latest"},
    # An import of "everything since": one run stands for the whole gap.
    "import-orders": {"window": "2d", "select": "span"},
    # A cron string instead of a crontab; of the missed nights, at most the three newest.
    "nightly-report": {"window": "7d", "overlap_policy": "all", "max_runs": 3, "keep": "newest"},
    # People receive it: missed slots are never sent late.
    "send-digest": False,
    # A bare window: the first missed slot runs, the others are skipped while it does.
    "poll-inbox": "10m",
    # Independent of each other: all missed slots at once.
    "thumbnails": {"window": "2h", "overlap_policy": "allow"},
    # While one runs, one more waits; it does the work of all others.
    "reindex": {"window": "1h", "overlap_policy": "buffer_one"},
    # A newer forecast makes the running one worthless: it is killed ("cancel_other" revokes it).
    "forecast": {"window": "3h", "overlap_policy": "terminate_other"},
    # "heartbeat" has no policy: it runs exactly as under Celery's own scheduler.
}

# Where watermarks, leases and runs are kept; the broker itself when it is Redis.
# catchup_redis_url = "redis://localhost:6379/1"

# A ceiling for the first minutes after a long outage: 20 runs an entry, 100 in all, 100 ms apart.
# catchup_preset = "conservative"
