"""Options, arguments and parameter types that several commands share."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click
from celery.bin.base import CeleryOption
from click.shell_completion import CompletionItem

from celery_catchup.cli.command import OUTPUT

if TYPE_CHECKING:
    _Type = click.ParamType[Any]
else:
    _Type = click.ParamType

Function = TypeVar("Function", bound=Callable[..., Any])


def option(*names: str, group: str, **attrs: Any) -> Callable[[Function], Function]:
    """Declare an option under a heading of the help, as Celery's own commands do; show its default."""
    attrs["show_default"] = bool(attrs.get("default"))
    return click.option(*names, cls=CeleryOption, help_group=group, **attrs)


def _screen_option(*names: str, group: str, **attrs: Any) -> Callable[[Function], Function]:
    """Declare a flag that the screen takes, so that commands need not pass it on."""

    def remember(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        ctx.meta.setdefault(OUTPUT, {})[param.name] = value

    return option(*names, group=group, is_flag=True, expose_value=False, callback=remember, **attrs)


zone_option = _screen_option(
    "--local/--utc",
    "local",
    group="Output",
    help="Print times in the app's time zone, with the offset; by default, in UTC.",
)
json_option = _screen_option("-j", "--json", "as_json", group="Output", help="Print JSON.")
force_option = _screen_option("-f", "--force", "force", group="Changes", help="Do not ask for confirmation.")
dry_run_option = option(
    "-n",
    "--dry-run",
    "dry_run",
    group="Changes",
    is_flag=True,
    help="Show what would be done, and change nothing.",
)


def complete_entry(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the names of the app's entries in the shell."""
    from celery.app.utils import find_app

    names: list[str] = []
    with contextlib.suppress(Exception):  # a shell must not show a traceback instead of a name
        given = ctx.find_root().params["app"]
        app: Any = find_app(given) if isinstance(given, str) else given
        names = [str(name) for name in app.conf.beat_schedule]
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def entries_argument(*, required: bool = False) -> Callable[[Function], Function]:
    """Declare the argument ``ENTRY…``."""
    metavar = "ENTRY..." if required else "[ENTRY]..."
    return click.argument(
        "entries", metavar=metavar, nargs=-1, required=required, shell_complete=complete_entry
    )


entry_argument = click.argument("entry", metavar="ENTRY", shell_complete=complete_entry)


class TimeParam(_Type):
    """A time such as ``6h ago``; one without an offset is in the app's time zone."""

    name = "time"

    def __init__(self, *, whole_day: bool = False, since: bool = False) -> None:
        self._options = {"whole_day": whole_day, "since": since}

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the time in UTC, or raise a usage error."""
        from celery_catchup.config.times import parse_time
        from celery_catchup.operations import Operator

        if ctx is None or ctx.obj is None or not isinstance(value, str):
            return value
        try:
            return parse_time(value, now=Operator.clock.now(), zone=ctx.obj.app.timezone, **self._options)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class DurationParam(_Type):
    """A duration such as ``6h``; a fine one may have seconds."""

    name = "duration"

    def __init__(self, *, fine: bool = False) -> None:
        self._fine = fine

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the duration, or raise a usage error."""
        from celery_catchup.config.times import FINE_UNITS, WINDOW_UNITS, parse_duration

        if not isinstance(value, str):
            return value
        try:
            return parse_duration(value, units=FINE_UNITS if self._fine else WINDOW_UNITS)
        except ValueError as error:
            self.fail(str(error), param, ctx)


window_option = option("--window", group="What if", type=DurationParam(), help="Use this window: 6h.")
policy_option = option(
    "--policy",
    group="What if",
    type=click.Choice(["all", "latest", "skip", "off"]),  # `PolicyChoice`, whose import takes long
    help="Use this policy: every slot, the newest, the first, none.",
)
