"""Groups of commands: one that loads a verb when it is asked for, one that has a verb by default."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click
from click_didyoumean import DYMGroup  # type: ignore[import-untyped]

PREVIEW = "preview"


class VerbGroup(DYMGroup):  # type: ignore[misc]
    """Knows its verbs by the modules they are in, and imports one when somebody asks for it.

    Each verb is in a module of its name beside this one, under its own name or, where that is
    taken, the name followed by an underscore.
    """

    def __init__(self, *args: Any, verbs: Mapping[str, str] | None = None, **attrs: Any) -> None:
        super().__init__(*args, **attrs)
        self.verbs = dict(verbs or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All of them, those that are imported later in the order in which they are needed."""
        return [*self.verbs, *(name for name in self.commands if name not in self.verbs)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The verb, imported now if need be."""
        if cmd_name in self.verbs and cmd_name not in self.commands:
            module = import_module(f"celery_catchup.cli.{self.verbs[cmd_name]}")
            self.add_command(module.command, cmd_name)
        found: click.Command | None = super().get_command(ctx, cmd_name)
        return found

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """``catchup --dry-run ENTRY`` is another way to ask for a preview."""
        if args[:1] == ["--dry-run"]:
            args = [PREVIEW, *args[1:]]
        rest: list[str] = super().parse_args(ctx, args)
        return rest


class DefaultGroup(DYMGroup):  # type: ignore[misc]
    """A group whose first word may be left out: ``runs`` is ``runs list``, ``backfill NAME`` is
    ``backfill create NAME``."""

    def __init__(self, *args: Any, default: str = "", **attrs: Any) -> None:
        super().__init__(*args, **attrs)
        self.default = default

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put in the word that was left out."""
        first = args[0] if args else ""
        if first not in self.commands and first not in ctx.help_option_names and not ctx.resilient_parsing:
            args = [self.default, *args]
        rest: list[str] = super().parse_args(ctx, args)
        return rest

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The usage of what is meant without a word, and then the others."""
        default = self.commands[self.default]
        formatter.write_usage(ctx.command_path, " ".join(default.collect_usage_pieces(ctx)))
        formatter.write_usage(ctx.command_path, "COMMAND [ARGS]...", prefix="       ")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The options of what is meant without a word, and the other commands."""
        self.commands[self.default].format_options(ctx, formatter)
        self.format_commands(ctx, formatter)
