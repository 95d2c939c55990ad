"""``celery catchup flower``: Flower with the Catch-up tab."""

from __future__ import annotations

from importlib import import_module

import click

from celery_catchup.cli.command import EX_USAGE, Verb
from celery_catchup.cli.screen import RefusalError


@click.command(
    "flower",
    cls=Verb,
    context_settings={"ignore_unknown_options": True},
    short_help="Start Flower with the Catch-up tab.",
)
@click.argument("options", metavar="[FLOWER OPTIONS]...", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def command(ctx: click.Context, *, options: tuple[str, ...]) -> None:
    """Start Flower with the Catch-up tab and the HTTP API; all options are Flower's own.

    It is 'celery flower' with 'import celery_catchup.flower' in its flowerconfig.py. Without --basic-auth
    or --auth the tab only shows, and changes nothing.
    """
    try:
        flower = import_module("flower.command").flower
    except ImportError as error:
        told = f"Flower cannot be imported ({error}); install it with: pip install 'celery-catchup[flower]'"
        raise RefusalError(told, code=EX_USAGE) from None
    # By its name: the tab is a neighbour of the commands, and neither knows the other.
    import_module("celery_catchup.flower")
    ctx.invoke(flower, tornado_argv=options)
