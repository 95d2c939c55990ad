"""The stored state in Redis: runs, watermarks, leases, templates, history.

It imports ``model``, ``config`` and ``planning``; other rooms import Redis only for error classes and broker
connections. Each write is one Lua script in ``lua/``, so that related records change together.
Start with `Store` (`store.py`), which calls the scripts, and `Keys` (`keys.py`), which lists all keys.
"""

from celery_catchup.store.active_limit import ActiveCatchup, ActiveLimit
from celery_catchup.store.audit import Actor, AuditAction, AuditTrail, Change, Origin
from celery_catchup.store.backfills import Backfill, Backfills
from celery_catchup.store.batches import Batch, CatchupRecord, Ends, EntryBatch, More, NewRun, UnmanagedBatch
from celery_catchup.store.connection import connect
from celery_catchup.store.controls import Controls, Replay
from celery_catchup.store.deadlines import DeadlineRecords
from celery_catchup.store.entry_records import EntryRecords
from celery_catchup.store.keys import Keys
from celery_catchup.store.leadership import FencedError, Leadership, Term
from celery_catchup.store.leases import Claim, Leases
from celery_catchup.store.ledger import Ledger, OutboxRun, StaleWatermarkError, StartedCommit
from celery_catchup.store.notes import Notes
from celery_catchup.store.notices import Notices
from celery_catchup.store.recovery import Evidence, Recovered, Recovery
from celery_catchup.store.retention import Retention
from celery_catchup.store.states import States, StoredState
from celery_catchup.store.store import Store
from celery_catchup.store.templates import Template
from celery_catchup.store.workers import Presence, Workers

__all__ = [
    "ActiveCatchup",
    "ActiveLimit",
    "Actor",
    "AuditAction",
    "AuditTrail",
    "Backfill",
    "Backfills",
    "Batch",
    "CatchupRecord",
    "Change",
    "Claim",
    "Controls",
    "DeadlineRecords",
    "Ends",
    "EntryBatch",
    "EntryRecords",
    "Evidence",
    "FencedError",
    "Keys",
    "Leadership",
    "Leases",
    "Ledger",
    "More",
    "NewRun",
    "Notes",
    "Notices",
    "Origin",
    "OutboxRun",
    "Presence",
    "Recovered",
    "Recovery",
    "Replay",
    "Retention",
    "StaleWatermarkError",
    "StartedCommit",
    "States",
    "Store",
    "StoredState",
    "Template",
    "Term",
    "UnmanagedBatch",
    "Workers",
    "connect",
]
