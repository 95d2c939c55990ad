"""The tasks of ``celeryconfig.py``: each logs the slot it was run for."""

from celery import Celery
from celery.utils.log import get_task_logger

app = Celery("tasks")
app.config_from_object("celeryconfig")

logger = get_task_logger(__name__)


def _log(task):
    """``scheduled_time`` and ``is_catchup`` are headers of every message that beat sends."""
    late = " (catching up)" if task.request.get("is_catchup") else ""
    logger.info("%s for %s%s", task.name, task.request.get("scheduled_time"), late)


@app.task(bind=True)
def etl(self):
    """Load the hour that the slot stands for, and no other."""
    _log(self)


@app.task(bind=True)
def refresh(self):
    """Redraw the dashboard."""
    _log(self)


@app.task(bind=True)
def import_orders(self):
    """Import the orders of the run's interval."""
    _log(self)


@app.task(bind=True)
def report(self):
    """Write the nightly report."""
    _log(self)


@app.task(bind=True)
def send_digest(self):
    """Mail the latest news."""
    _log(self)


@app.task(bind=True)
def poll(self):
    """Poll the inbox."""
    _log(self)


@app.task(bind=True)
def draw(self):
    """Make thumbnails of new images since the previous slot."""
    _log(self)


@app.task(bind=True)
def reindex(self):
    """Update the search index."""
    _log(self)


@app.task(bind=True)
def forecast(self):
    """Compute tomorrow's forecast, which takes long."""
    _log(self)


@app.task(bind=True)
def heartbeat(self):
    """Log that everything is alive."""
    _log(self)
