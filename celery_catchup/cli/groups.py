"""Groups of commands: one imports its commands lazily, one has a default command."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click
from click_didyoumean import DYMGroup  # type: ignore[import-untyped]


class LazyGroup(DYMGroup):  # type: ignore[misc]
    """Imports a command's module when the command is needed; each module has it as ``command``."""

    def __init__(self, *args: Any, modules: Mapping[str, str], **attrs: Any) -> None:
        super().__init__(*args, **attrs)
        self.modules = modules

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the lazy commands in the order of the table, then the others."""
        return list(dict.fromkeys([*self.modules, *self.commands]))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command; import it first if needed."""
        if cmd_name in self.modules and cmd_name not in self.commands:
            module = import_module(f"celery_catchup.cli.{self.modules[cmd_name]}")
            self.add_command(module.command, cmd_name)
        found: click.Command | None = super().get_command(ctx, cmd_name)
        return found

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read ``catchup --dry-run ENTRY`` as ``catchup preview ENTRY``."""
        if args[:1] == ["--dry-run"]:
            args = ["preview", *args[1:]]
        rest: list[str] = super().parse_args(ctx, args)
        return rest


class DefaultCommandGroup(DYMGroup):  # type: ignore[misc]
    """Runs its default command if no other is named: ``runs`` is ``runs list``, ``backfill NAME`` is
    ``backfill create NAME``."""

    def __init__(self, *args: Any, default: str = "", **attrs: Any) -> None:
        super().__init__(*args, **attrs)
        self.default = default

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert the default command."""
        first = args[0] if args else ""
        if first not in self.commands and first not in ctx.help_option_names and not ctx.resilient_parsing:
            args = [self.default, *args]
        rest: list[str] = super().parse_args(ctx, args)
        return rest

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Show the usage of the default command, then that of the others."""
        default = self.commands[self.default]
        formatter.write_usage(ctx.command_path, " ".join(default.collect_usage_pieces(ctx)))
        formatter.write_usage(ctx.command_path, "COMMAND [ARGS]...", prefix="       ")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Show the options of the default command, then the other commands."""
        self.commands[self.default].format_options(ctx, formatter)
        self.format_commands(ctx, formatter)
