"""Change runs after asking, and print the outcome of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from celery_catchup.cli.command import EX_FAILURE
from celery_catchup.cli.screen import SHORT_ID, Screen, clean
from celery_catchup.error_text import counted

if TYPE_CHECKING:
    from celery_catchup.operations import Operator
    from celery_catchup.operations.dead_letters import HandledRun


def handle_runs(
    operator: Operator,
    screen: Screen,
    records: Sequence[Any],
    operation: Callable[..., list[HandledRun]],
    verb: str,
    *,
    dry_run: bool,
) -> int:
    """Apply an operation to runs, after asking; return the exit code."""
    runs = counted(len(records), "run")
    if records and not dry_run:
        screen.confirm(f"{verb.capitalize()} {runs}?", action=f"{verb} {runs}")
    with screen.progress(len(records), label=verb.capitalize()) as step:
        handled = operation(operator, records, dry_run=dry_run, progress=step)
    as_json = screen.printed_as_json({"runs": handled})
    code = 0
    for one in handled:
        if one.outcome.value == "refused":
            code = EX_FAILURE
            screen.note(f"Error: run {one.run_id}: {one.reason}")
        elif not as_json:
            outcome = f"would {verb}" if dry_run else str(one.outcome)
            time = screen.time(one.scheduled_time)
            screen.out(f"{one.run_id[:SHORT_ID]}  {clean(one.entry)}  {time}  {outcome}")
            if one.reason:
                screen.note(f"Run {one.run_id}: {one.reason}")
    if dry_run and handled:
        screen.note("Nothing was changed.")
    return code
