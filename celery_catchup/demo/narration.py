"""What the audience sees: short lines with the seconds since the beginning."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import click

_COLOURS = {"beat": "cyan", "worker": "green"}


class Narrator:
    """Writes to standard output, at once; with colours on a terminal that wants them."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._begun = monotonic()
        plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
        self._colours = sys.stdout.isatty() and not plain

    def say(self, text: str) -> None:
        """A sentence of the story."""
        self._line(click.style(text, bold=True))

    def quote(self, who: str, text: str) -> None:
        """What one of the processes said or did."""
        self._line(f"{click.style(f'{who:6} |', fg=_COLOURS.get(who))} {text}")

    def show(self, text: str = "", *, good: bool | None = None) -> None:
        """A table or a verdict, as it is; green when it is good, red when it is bad."""
        colour = None if good is None else "green" if good else "red"
        click.echo(click.style(text, fg=colour) if colour else text, color=self._colours)

    def _line(self, text: str) -> None:
        click.echo(f"{self._monotonic() - self._begun:5.1f}s  {text}", color=self._colours)
