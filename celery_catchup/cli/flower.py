"""``celery catchup flower``: start Flower with the Catch-up tab."""

from __future__ import annotations

from importlib import import_module

import click

from celery_catchup.cli.command import EX_USAGE, CatchupCommand
from celery_catchup.cli.screen import CommandError


@click.command(
    "flower",
    cls=CatchupCommand,
    context_settings={"ignore_unknown_options": True},
    short_help="Start Flower with the Catch-up tab.",
)
@click.argument("options", metavar="[FLOWER OPTIONS]...", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def command(ctx: click.Context, *, options: tuple[str, ...]) -> None:
    """Start Flower with the Catch-up tab and the HTTP API; all options are Flower's own.

    It is 'celery flower' with 'import celery_catchup.flower' in its flowerconfig.py. Without --basic-auth
    or --auth the tab is read-only.
    """
    try:
        flower = import_module("flower.command").flower
    except ImportError as error:
        problem = f"Flower cannot be imported ({error})"
        advice = "install it with: pip install flower"
        raise CommandError(f"{problem}; {advice}", code=EX_USAGE) from None
    # By name: cli and flower are neighbours that do not import each other.
    import_module("celery_catchup.flower")
    ctx.invoke(flower, tornado_argv=options)
