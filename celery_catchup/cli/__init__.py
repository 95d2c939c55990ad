"""The ``celery catchup`` commands. Each module is one command: parse, call one operation, print.

May import every room except `flower`. Celery imports this file on every ``celery`` call, so commands are
loaded lazily and heavy imports stay inside functions. Start reading in `command.py`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click
from celery.bin.base import handle_preload_options

from celery_catchup.cli.groups import LazyGroup
from celery_catchup.config.report_masking import mask_settings

# Here, because ``celery report`` imports nothing else from this package.
mask_settings()

_COMMANDS = (
    "preview status why whatif entries runs run backfill pause resume approve discard watermark drift dlq "
    "import flower audit forget purge notify doctor bench"
)
_MODULES = {name: name for name in _COMMANDS.split()} | {
    "import": "imports"
}  # a keyword cannot name a module

_EPILOG = """
\b
What was missed, and did it run?
  preview                       what the next catch-up would do
  runs --since 12h              what ran, for which slot, how late
  runs --state skipped          what was skipped, and why
  why ENTRY TIME                why one slot ran, waits or was skipped

\b
Run it again:
  backfill ENTRY --start yesterday --end now        slots that never ran
  dlq replay --all                                  runs that failed for good
  runs --follow                                     watch them

\b
A run is stuck:
  status, doctor                                    what keeps runs from being executed
  runs resend RUN                                   its message was lost
  runs cancel RUN --terminate                       its task hangs

\b
Times: 2026-02-07T10:00Z, 2026-02-07, '6h ago', yesterday, now; without an offset, in the app's time zone.
Exit codes: 0 done, 1 failed or unhealthy, 2 wrong usage or configuration, 3 missed slots were found
(preview --exit-code) or entries differ (drift), 69 the store is unreachable. 'catchup --dry-run ENTRY' is
'catchup preview ENTRY'.
"""


@click.group(name="catchup", cls=LazyGroup, modules=_MODULES, epilog=_EPILOG)
@click.pass_context
@handle_preload_options  # type: ignore[untyped-decorator]
def catchup(ctx: click.Context, **_: Any) -> None:
    """Show and recover the slots that beat missed, and the runs made from them."""


@catchup.command()  # type: ignore[untyped-decorator]
@click.option("--compare", is_flag=True, help="Play the same outage under Celery's own scheduler too.")
@click.option("--keep", is_flag=True, help="Keep the demo's files and print where they are.")
@click.pass_context
def demo(ctx: click.Context, *, compare: bool, keep: bool) -> None:
    """Play an outage on a private server: beat is killed, comes back, and catches up."""
    try:
        # By name: the demo is a higher room, and only this command needs what it imports.
        code: int = import_module("celery_catchup.demo").play(compare=compare, keep=keep)
    except KeyboardInterrupt:
        code = 130  # during the import; after it the demo handles the signal itself
    ctx.exit(code)
