"""The screen: data on stdout, notes on stderr, and nothing of a name or an error that a terminal obeys."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, TextIO

import click

_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # colours, cursor
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f]).*?(?:\x07|\x1b\\|\x9c)"  # titles, links and other strings
    r"|\x1b[ -/]*[0-~]",
    re.DOTALL,
)
_STRANGE = "\N{REPLACEMENT CHARACTER}"
_COLOURS = {
    "succeeded": "green",
    "completed": "green",
    "ok": "green",
    "failed": "red",
    "dead": "red",
    "failure": "red",
    "revoked": "yellow",
    "warning": "yellow",
    "paused": "yellow",
    "cancelled": "yellow",
}
SHORT_ID = 8
"""Characters of a run's id that a table shows; they are enough to ask for it."""


class RefusalError(click.ClickException):
    """Ends a command with one sentence and an exit code."""

    def __init__(self, message: str, *, code: int = 1) -> None:
        super().__init__(_encodable(clean(message, lines=True), sys.stderr))
        self.exit_code = code  # type: ignore[misc]


class Screen:
    """What a command writes to."""

    def __init__(self, *, no_color: bool = False, quiet: bool = False) -> None:
        self._color = False if no_color else None
        self._quiet = quiet

    def out(self, text: str = "", *, nl: bool = True) -> None:
        """Data, for people."""
        click.echo(_encodable(text, sys.stdout), color=self._color, nl=nl)

    def note(self, text: str) -> None:
        """What is not data: progress, advice, what was done."""
        if not self._quiet:
            click.echo(_encodable(clean(text, lines=True), sys.stderr), err=True, color=self._color)

    def json(self, value: Any, *, line: bool = False) -> None:
        """Data, for programs; on one line, where many follow each other."""
        from celery_catchup.operations.json_form import as_json

        # ASCII only, so that no character of a name means anything to a terminal.
        click.echo(json.dumps(as_json(value), indent=None if line else 2), color=self._color)

    def table(self, head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Rows in columns."""
        from tabulate import tabulate

        cells = [[self.painted(clean(str(cell))) for cell in row] for row in rows]
        for line in tabulate(cells, head, tablefmt="simple", disable_numparse=True).splitlines():
            self.out(line.rstrip())

    def painted(self, word: str) -> str:
        """A word in the colour that it has everywhere, a state for instance."""
        colour = None if self._color is False else _COLOURS.get(word)
        return click.style(word, fg=colour) if colour and _coloured() else word

    def facts(self, pairs: Iterable[tuple[str, object]]) -> None:
        """One ``Name: value`` a line; unknown values are left out."""
        for name, value in pairs:
            if value is not None:
                self.out(f"{clean(name)}: {clean(str(value))}")

    @contextmanager
    def progress(self, total: int, *, label: str) -> Iterator[Callable[..., None]]:
        """A bar on stderr, where somebody looks; call what it gives with the number of steps done."""
        if self._quiet or not sys.stderr.isatty():
            yield lambda _=1: None
            return
        with click.progressbar(length=total, label=label, file=sys.stderr) as bar:
            yield lambda steps=1: bar.update(steps)

    def confirm(self, question: str, *, force: bool, doing: str) -> None:
        """Go on when somebody says yes; end the command when nobody can, or says no."""
        if force:
            return
        if not sys.stdin.isatty():
            raise RefusalError(
                f"refusing to {doing} without asking, and there is no terminal; add -f to do it, -n to look"
            )
        if not click.confirm(clean(question), err=True):
            raise RefusalError("nothing was changed")


def clean(text: str, *, lines: bool = False) -> str:
    """The text without what a terminal would obey; on one line, unless ``lines`` are meant."""
    plain = _ESCAPES.sub("", text)
    if plain.isprintable():
        return plain
    if lines:
        return "\n".join(_printable(line.replace("\t", "    ")) for line in plain.split("\n"))
    return _printable(" ".join(plain.split()))


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else _STRANGE for char in text)


def _encodable(text: str, stream: TextIO) -> str:
    """The text with question marks for what a terminal of old cannot show."""
    encoding = stream.encoding or "utf-8"
    return text.encode(encoding, "replace").decode(encoding)


def _coloured() -> bool:
    return sys.stdout.isatty()


def precision(moments: Iterable[datetime | None]) -> str:
    """The shortest form of time that tells these moments apart from their neighbours."""
    exact = all(moment.second == 0 for moment in moments if moment is not None)
    return "%Y-%m-%d %H:%M" if exact else "%Y-%m-%d %H:%M:%S"


def moment(value: datetime | None, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """``2026-02-07 10:00``, in UTC as everything here; a dash when there is none."""
    return "-" if value is None else value.strftime(form)


def stamp(value: datetime | None) -> str | None:
    """``2026-02-07T10:00:00Z``; fractions are left out."""
    return None if value is None else value.strftime("%Y-%m-%dT%H:%M:%SZ")


def length(value: timedelta | None) -> str:
    """``2h33m``, ``45s``, ``0.7s``: as exact as one wants to know."""
    if value is None:
        return "-"
    seconds = value.total_seconds()
    if seconds < 0:
        return f"-{length(-value)}"
    if seconds < 10:
        return f"{seconds:.1f}s" if seconds % 1 >= 0.05 else f"{seconds:.0f}s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "m"), (rest, "s")]
    largest = next(index for index, (count, _) in enumerate(parts) if count)
    return "".join(f"{count}{unit}" for count, unit in parts[largest : largest + 2] if count)


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """``1 run``, ``3 runs``."""
    return f"{number} {noun}" if number == 1 else f"{number} {plural or noun + 's'}"
