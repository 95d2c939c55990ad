"""Dispatch: from a run to the broker message that a worker receives, in three stages.

Celery's own ``apply_async`` builds a message, which is captured before it leaves (`CapturedMessage`). A
`Template` is made from it and stored. ``render`` makes the message of each sending. When the broker is the
Redis server of the state, a script pushes it in the step that records the run ("atomic"); to every other
broker the leader publishes it from the outbox, with confirmation. May import engine, store, events and
what is below them. Start reading in `dispatcher.py`.
"""

from celery_catchup.dispatch.dispatch_error import DispatchError
from celery_catchup.dispatch.dispatcher import Dispatcher, EntryDispatch, Mode
from celery_catchup.dispatch.sent_events import SentEvents
from celery_catchup.store.templates import render

__all__ = ["DispatchError", "Dispatcher", "EntryDispatch", "Mode", "SentEvents", "render"]
