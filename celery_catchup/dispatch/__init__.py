"""Dispatch: from a run to the broker message that a worker receives.

Celery's own ``apply_async`` builds the message; it is caught before it leaves and becomes a
`Template`, which the store fills in for each run. On a broker that is the very Redis server the
state is in, the store pushes it in the step that records the run ("atomic"); for every other
broker the leader publishes it from the outbox, with confirmation.
"""

from celery_catchup.dispatch.dispatcher import Dispatcher, Mode
from celery_catchup.dispatch.failures import DispatchError
from celery_catchup.dispatch.sent_events import SentEvents
from celery_catchup.store.templates import render

__all__ = ["DispatchError", "Dispatcher", "Mode", "SentEvents", "render"]
