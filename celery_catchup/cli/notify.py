"""``celery catchup notify``: test the receivers of notifications."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from celery_catchup.cli.command import EX_FAILURE, operator_command
from celery_catchup.cli.parameters import json_option
from celery_catchup.cli.screen import Screen, clean
from celery_catchup.error_text import counted

if TYPE_CHECKING:
    from celery_catchup.operations import Operator


@click.group("notify", short_help="Test the receivers of notifications.")
def command() -> None:
    """Test the receivers of notifications that catchup_notify lists."""


@operator_command("test", parent=command, short_help="Send a test to each receiver.")
@json_option
def _test(operator: Operator, screen: Screen) -> int:
    """Send a test to each receiver at once, from this process; the queue of beat is not used.

    The exit code is 1 if a receiver does not accept it, or if there is none.
    """
    from celery_catchup.operations.notifications import send_test

    found = send_test(operator)
    refused = sum(one.problem is not None for one in found)
    if not screen.printed_as_json({"receivers": found}):
        for one in found:
            state = "accepted" if one.problem is None else f"failed: {one.problem}"
            screen.out(f"{clean(one.receiver)}: {clean(state)}")
        if not found:
            screen.note("catchup_notify lists no receiver.")
        elif refused:
            screen.note(f"{counted(refused, 'receiver')} did not accept it.")
    return EX_FAILURE if refused or not found else 0
