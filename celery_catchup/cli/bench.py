"""``celery catchup bench``: measure the app's own broker and Redis."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import click

from celery_catchup.cli.command import operator_command
from celery_catchup.cli.parameters import json_option, option
from celery_catchup.cli.screen import Screen, clean

if TYPE_CHECKING:
    from celery_catchup.operations import Operator


@operator_command("bench", short_help="Measure your own broker and Redis.")
@option(
    "-s",
    "--seconds",
    group="Measurement",
    type=click.FloatRange(1, 600),
    default=30.0,
    help="How long to measure, about.",
)
@option("-f", "--force", group="Measurement", is_flag=True, help="Measure although a beat leads.")
@json_option
def command(operator: Operator, screen: Screen, *, seconds: float, force: bool) -> None:
    """Measure how fast a beat sends to your broker, and how long ticks, claims and reports take with your
    Redis.

    It uses a queue and a namespace of its own (the app's, with ".bench" after it) on the same servers, and
    deletes both at the end, also after Ctrl-C. No worker is needed. While a beat leads in the app's
    namespace it refuses, because both would share the servers; -f measures all the same.
    """
    from celery_catchup.operations.bench import measure

    signal.signal(signal.SIGTERM, _interrupt)
    screen.note(f"Measuring for about {seconds:g} s")
    found = measure(operator, seconds=seconds, force=force)
    if screen.printed_as_json(found):
        return
    rows = [
        (
            one.name,
            f"{one.value:,.1f} {one.unit}",
            None if one.slow is None else f"{one.slow:,.1f} {one.unit}",
        )
        for one in found.figures
    ]
    screen.table(("MEASURED", "USUAL", "SLOWEST OF 100"), rows)
    screen.out()
    for one in found.figures:
        screen.out(f"{screen.painted(one.verdict.value)}: {clean(one.name)}: {clean(one.detail)}")
    screen.out(f"\n{clean(found.verdict)}")


def _interrupt(*_: Any) -> None:
    """End as with Ctrl-C, so that queue and namespace are deleted."""
    raise KeyboardInterrupt
