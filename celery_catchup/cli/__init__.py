"""``celery catchup …``: imported on every ``celery`` call, so nothing heavy is imported here."""

from __future__ import annotations

from importlib import import_module

import click


@click.group(name="catchup")
def catchup() -> None:
    """Slots that beat missed, and the runs made of them."""


@catchup.command()
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
