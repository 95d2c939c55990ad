"""Names of the headers that this package adds to messages."""

from __future__ import annotations

RUN_ID = "catchup_run_id"
ENTRY = "catchup_entry"
SCHEDULED_TIME = "scheduled_time"
IS_CATCHUP = "is_catchup"
TRIGGER_TYPE = "trigger_type"
DATA_INTERVAL_START = "data_interval_start"
DATA_INTERVAL_END = "data_interval_end"
SLOTS = "catchup_slots"

CLAIM_HEADERS = frozenset({RUN_ID, ENTRY, DATA_INTERVAL_START, DATA_INTERVAL_END})
"""Headers of messages that belong to a run; without them no worker can claim it."""
