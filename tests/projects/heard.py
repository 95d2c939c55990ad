"""The project of the workers' tests with somebody who listens, as a user would in the module of the app."""

from __future__ import annotations

from typing import Any

from celery_catchup import events
from celery_catchup.signals import run_dead
from tests.projects import claims
from tests.projects.claims import app as app


def hear(event: Any) -> None:
    claims.write("heard", kind=type(event).__name__, run_id=event.run_id)


@run_dead.connect
def mourn(sender: Any = None, run_id: str = "", reason: str = "", **_: Any) -> None:
    claims.write("dead", sender=sender, run_id=run_id, reason=reason)


events.subscribe(
    hear, events.RunStarted, events.AttemptEnded, events.RunRefused, events.ReportRefused, events.RunDied
)
