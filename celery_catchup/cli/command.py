"""What every command shares: its options, its errors and exit codes, and the operator it works at.

A command parses, calls one operation, renders. Nothing heavy is imported before one is invoked.
"""

from __future__ import annotations

import contextlib
import getpass
import socket
from collections.abc import Callable
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, TypeVar

import click
from celery.bin.base import CeleryCommand, CeleryOption
from click.shell_completion import CompletionItem

from celery_catchup.cli.screen import RefusalError, Screen

if TYPE_CHECKING:
    from celery_catchup.operations import Operator

    _Type = click.ParamType[Any]
else:
    _Type = click.ParamType

EX_FAILURE = 1
EX_USAGE = 2
EX_MISSED = 3
EX_UNAVAILABLE = 69

Function = TypeVar("Function", bound=Callable[..., Any])


class Verb(CeleryCommand):  # type: ignore[misc]
    """A command whose errors are one line and an exit code."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Options under their headings, ``--help`` last; arguments are in the usage line already."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = None if isinstance(param, click.Argument) else param.get_help_record(ctx)
            if record is not None:
                heading = getattr(param, "help_group", None) or "Options"
                sections.setdefault(heading, []).append(record)
        for heading in sorted(sections, key="Options".__eq__):
            with formatter.section(heading):
                formatter.write_dl(sections[heading])

    def invoke(self, ctx: click.Context) -> Any:
        """Do it; what goes wrong is told without a traceback."""
        from celery_catchup.cli.errors import failures

        with failures(ctx):
            return super().invoke(ctx)


def verb(name: str | None = None, **attrs: Any) -> Callable[[Callable[..., Any]], click.Command]:
    """Make a function that takes a operator and a screen a command; what it returns is the exit code."""

    def decorate(function: Callable[..., Any]) -> click.Command:
        command: click.Command = click.command(name, cls=Verb, **attrs)(_at_desk(function))
        return command

    return decorate


def _at_desk(function: Callable[..., Any]) -> Callable[..., Any]:
    @click.pass_context
    def caller(ctx: click.Context, /, **options: Any) -> None:
        screen = Screen(no_color=ctx.obj.no_color, quiet=ctx.obj.quiet)
        code = function(_desk(ctx), screen, **options)
        ctx.exit(code or 0)

    return update_wrapper(caller, function)


def _desk(ctx: click.Context) -> Operator:
    from celery_catchup.operations import Operator

    operator = Operator(ctx.obj.app, by=_who())
    ctx.call_on_close(operator.close)
    return operator


def _who() -> str:
    """Who changes something, for the record."""
    user = "somebody"
    with contextlib.suppress(OSError, KeyError, ImportError):  # a container's user may have no name
        user = getpass.getuser()
    return f"{user}@{socket.gethostname()}"


# -- options ---------------------------------------------------------------------------------


def option(*names: str, group: str, **attrs: Any) -> Callable[[Function], Function]:
    """An option under a heading of the help, as Celery's own commands have them."""
    return click.option(*names, cls=CeleryOption, help_group=group, **attrs)


def json_option(function: Function) -> Function:
    """``-j``: the documented schema instead of a table."""
    return option("-j", "--json", "as_json", group="Output", is_flag=True, help="Print JSON.")(function)


def dry_run_option(function: Function) -> Function:
    """``-n``: look, change nothing."""
    text = "Show what would be done, and change nothing."
    return option("-n", "--dry-run", "dry_run", group="Changes", is_flag=True, help=text)(function)


def force_option(function: Function) -> Function:
    """``-f``: no question."""
    return option("-f", "--force", "force", group="Changes", is_flag=True, help="Do not ask.")(function)


# -- parameters ------------------------------------------------------------------------------


def entry_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The names of the app's entries that begin so, for the shell."""
    from celery.app.utils import find_app

    names: list[str] = []
    with contextlib.suppress(Exception):  # a shell must not show a traceback instead of a name
        given = ctx.find_root().params["app"]
        app: Any = find_app(given) if isinstance(given, str) else given
        names = [str(name) for name in app.conf.beat_schedule]
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def entries_argument(*, required: bool = False) -> Callable[[Function], Function]:
    """``ENTRY…``"""
    metavar = "ENTRY..." if required else "[ENTRY]..."
    return click.argument("entries", metavar=metavar, nargs=-1, required=required, shell_complete=entry_names)


def entry_argument(function: Function) -> Function:
    """``ENTRY``"""
    return click.argument("entry", metavar="ENTRY", shell_complete=entry_names)(function)


class Moment(_Type):
    """A time as people write it; naive ones are those of the app's time zone."""

    name = "time"

    def __init__(self, *, whole_day: bool = False, since: bool = False) -> None:
        self._whole_day, self._since = whole_day, since

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The moment, or a usage error."""
        from celery_catchup.config.times import parse_time
        from celery_catchup.operations import Operator

        if ctx is None or ctx.obj is None or not isinstance(value, str):
            return value
        now, zone = Operator.clock.now(), ctx.obj.app.timezone
        try:
            return parse_time(value, now=now, zone=zone, whole_day=self._whole_day, since=self._since)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Length(_Type):
    """A duration such as ``6h``; fine ones may be in seconds."""

    name = "duration"

    def __init__(self, *, fine: bool = False) -> None:
        self._fine = fine

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The duration, or a usage error."""
        from celery_catchup.config.times import FINE_UNITS, WINDOW_UNITS, parse_duration

        if not isinstance(value, str):
            return value
        try:
            return parse_duration(value, units=FINE_UNITS if self._fine else WINDOW_UNITS)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def refuse_usage(message: str) -> RefusalError:
    """What was typed makes no sense together."""
    return RefusalError(message, code=EX_USAGE)
