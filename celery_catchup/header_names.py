"""The names of the headers that a message of a run carries."""

from __future__ import annotations

RUN_ID = "catchup_run_id"
ENTRY = "catchup_entry"
SCHEDULED_TIME = "scheduled_time"
IS_CATCHUP = "is_catchup"
TRIGGER_TYPE = "trigger_type"
DATA_INTERVAL_START = "data_interval_start"
DATA_INTERVAL_END = "data_interval_end"
