"""The tasks of ``celeryconfig.py``: each says which slot it was run for."""

from celery import Celery
from celery.utils.log import get_task_logger

app = Celery("tasks")
app.config_from_object("celeryconfig")

logger = get_task_logger(__name__)


def _tell(task):
    """``scheduled_time`` and ``is_catchup`` are headers of every message that beat sends."""
    late = " (catching up)" if task.request.get("is_catchup") else ""
    logger.info("%s for %s%s", task.name, task.request.get("scheduled_time"), late)


@app.task(bind=True)
def etl(self):
    """Load the hour that the slot stands for, and no other."""
    _tell(self)


@app.task(bind=True)
def refresh(self):
    """Draw the dashboard again."""
    _tell(self)


@app.task(bind=True)
def report(self):
    """Write the report of the night."""
    _tell(self)


@app.task(bind=True)
def send_digest(self):
    """Mail what is new."""
    _tell(self)


@app.task(bind=True)
def poll(self):
    """Look into the inbox."""
    _tell(self)


@app.task(bind=True)
def draw(self):
    """Make thumbnails of what came in since the slot before."""
    _tell(self)


@app.task(bind=True)
def reindex(self):
    """Make search find what is new."""
    _tell(self)


@app.task(bind=True)
def forecast(self):
    """Compute for a long time what tomorrow will be like."""
    _tell(self)


@app.task(bind=True)
def heartbeat(self):
    """Say that everything is alive."""
    _tell(self)
