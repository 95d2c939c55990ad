"""``celery catchup …``: imported on every ``celery`` call, so nothing heavy is imported here."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click
from celery.bin.base import handle_preload_options

from celery_catchup.cli.groups import VerbGroup
from celery_catchup.config.report_masking import mask_redis_url

# Here, because ``celery report`` imports nothing else of ours.
mask_redis_url()

_VERBS = (
    "preview",
    "status",
    "entries",
    "runs",
    "run",
    "backfill",
    "pause",
    "resume",
    "watermark",
    "drift",
    "dlq",
    "import",
    "flower",
    "doctor",
)

# A module cannot have the name of a statement.
_MODULES = {"import": "imports"}

_EPILOG = """
\b
What was missed, and did it run?
  preview                       what the next catch-up would do
  runs --since 12h              what ran, for which slot, how late
  runs --state skipped          what was decided not to run, and why

\b
Run it again:
  backfill ENTRY --start yesterday --end now        slots that never ran
  dlq replay --all                                  runs that failed for good
  runs --follow                                     watch them

\b
Times: 2026-02-07T10:00Z, 2026-02-07, '6h ago', yesterday, now; without an offset, in the app's time zone.
Exit codes: 0 done, 1 failed or unhealthy, 2 wrong usage or configuration, 3 missed slots were found
(preview --exit-code) or entries differ (drift), 69 the store is unreachable. 'catchup --dry-run ENTRY' is
'catchup preview ENTRY'.
"""


@click.group(
    name="catchup", cls=VerbGroup, verbs={name: _MODULES.get(name, name) for name in _VERBS}, epilog=_EPILOG
)
@click.pass_context
@handle_preload_options  # type: ignore[untyped-decorator]
def catchup(ctx: click.Context, **_: Any) -> None:
    """Slots that beat missed, and the runs made of them."""


@catchup.command()  # type: ignore[untyped-decorator]
@click.option("--compare", is_flag=True, help="Play the same outage under Celery's own scheduler too.")
@click.option("--keep", is_flag=True, help="Keep the demo's files and say where they are.")
@click.pass_context
def demo(ctx: click.Context, *, compare: bool, keep: bool) -> None:
    """An outage on a server of its own: beat is killed, comes back, and catches up."""
    try:
        # By its name: the demo is a layer above, and only this command needs what it imports.
        code: int = import_module("celery_catchup.demo").play(compare=compare, keep=keep)
    except KeyboardInterrupt:
        code = 130  # while it was being imported; later the demo sees to it
    ctx.exit(code)
