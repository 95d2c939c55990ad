"""The base of every command: it opens the operator, and turns errors into one line and an exit code."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any

import click
from celery.bin.base import CeleryCommand

from celery_catchup.cli.screen import Screen

EX_FAILURE = 1
EX_USAGE = 2
EX_MISSED = 3
EX_UNAVAILABLE = 69


class CatchupCommand(CeleryCommand):  # type: ignore[misc]
    """A command whose errors are one line and an exit code."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Show options under their headings; arguments are in the usage line already."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = None if isinstance(param, click.Argument) else param.get_help_record(ctx)
            if record is not None:
                sections.setdefault(getattr(param, "help_group", "Options"), []).append(record)
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; report errors without a traceback."""
        from celery_catchup.cli.errors import readable_errors

        with readable_errors(ctx):
            return super().invoke(ctx)


def operator_command(
    name: str, *, parent: click.Group | None = None, **attrs: Any
) -> Callable[[Callable[..., Any]], click.Command]:
    """Make a command of ``function(operator, screen, **options)``, which returns the exit code or None.

    The command joins the group ``parent``, if there is one.
    """

    def decorate(function: Callable[..., Any]) -> click.Command:
        @click.pass_context
        def run(ctx: click.Context, /, **options: Any) -> None:
            from celery_catchup.operations import Operator
            from celery_catchup.store import Actor, Origin

            operator = Operator(ctx.obj.app, actor=Actor.of_process(Origin.CLI))
            ctx.call_on_close(operator.close)
            ctx.exit(function(operator, _screen(ctx), **options) or 0)

        command: click.Command = click.command(name, cls=CatchupCommand, **attrs)(
            update_wrapper(run, function)
        )
        if parent is not None:
            parent.add_command(command)
        return command

    return decorate


OUTPUT = "celery_catchup.output"
"""The key in a click context's ``meta`` for options that the screen takes: ``-j``, ``-f``, ``--local``."""


def _screen(ctx: click.Context) -> Screen:
    given = dict(ctx.meta.get(OUTPUT, {}))
    if given.pop("local", False):
        from celery_catchup.timetables.zones import usable_zone

        given["zone"] = usable_zone(ctx.obj.app.timezone)
    return Screen(no_color=ctx.obj.no_color, quiet=ctx.obj.quiet, **given)
