"""Play an outage of beat and its recovery, with real processes on a server of its own.

May import everything but the command line and Flower. Start reading in `play.py`; `audit.py` checks the
ledger against what the tasks wrote.
"""

from celery_catchup.demo.play import play

__all__ = ["play"]
