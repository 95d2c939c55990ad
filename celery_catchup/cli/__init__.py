"""``celery catchup …``: imported on every ``celery`` call, so nothing heavy is imported here."""

from __future__ import annotations

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
    from celery_catchup.demo import play

    ctx.exit(play(compare=compare, keep=keep))
