"""``celery catchup preview``: what the next catch-up would do."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import click

from celery_catchup.cli.screen import Screen
from celery_catchup.cli.slots import show_preview, summary, title
from celery_catchup.cli.verbs import (
    EX_MISSED,
    Length,
    Moment,
    entries_argument,
    json_option,
    option,
    verb,
)

if TYPE_CHECKING:
    from celery_catchup.operations import Desk
    from celery_catchup.operations.previews import Preview

_POLICIES = ["all", "latest", "skip", "off"]


@verb("preview", short_help="What the next catch-up would do, slot by slot.")
@entries_argument()
@option("--window", group="What if", type=Length(), metavar="DURATION", help="With this window, such as 6h.")
@option(
    "--policy",
    group="What if",
    type=click.Choice(_POLICIES),
    help="all: every slot, in order. latest: the newest. skip: the first. off: none.",
)
@option("--at", group="What if", type=Moment(), metavar="TIME", help="If beat were back at this time.")
@option(
    "--exit-code",
    "exit_code",
    group="Output",
    is_flag=True,
    help="Exit with 3 when slots were missed.",
)
@json_option
@click.pass_context
def _unused(ctx: click.Context) -> None:
    """Replaced below."""


def command() -> None:
    """Replaced below."""
