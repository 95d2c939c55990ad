"""Print data to stdout and notes to stderr, without terminal control sequences from names or errors."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, tzinfo
from typing import IO, Any, TextIO

import click

_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # colours, cursor
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f]).*?(?:\x07|\x1b\\|\x9c)"  # titles, links and other strings
    r"|\x1b[ -/]*[0-~]",
    re.DOTALL,
)
_COLOURS = {
    **dict.fromkeys(("succeeded", "completed", "ok"), "green"),
    **dict.fromkeys(("failed", "dead", "failure"), "red"),
    **dict.fromkeys(("revoked", "warning", "paused", "cancelled"), "yellow"),
}
SHORT_ID = 8
"""Characters of a run's id that a table shows; commands accept them."""


class CommandError(click.ClickException):
    """Ends a command with a message and an exit code."""

    def __init__(self, message: str, *, code: int = 1, prefix: str = "Error: ") -> None:
        super().__init__(_encodable(clean(message, lines=True), sys.stderr))
        self.exit_code = code  # type: ignore[misc]
        self._prefix = prefix

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the message to stderr."""
        click.echo(f"{self._prefix}{self.message}", file=file, err=True)


class Screen:
    """The output of one command, with times in ``zone``. ``as_json`` and ``force`` are its options ``-j``
    and ``-f``."""

    def __init__(
        self,
        *,
        no_color: bool = False,
        quiet: bool = False,
        as_json: bool = False,
        force: bool = False,
        zone: tzinfo = UTC,
    ) -> None:
        self._color, self._zone = False if no_color else None, zone
        self._quiet, self.as_json, self._force = quiet, as_json, force

    def out(self, text: str = "") -> None:
        """Print data for people."""
        click.echo(_encodable(text, sys.stdout), color=self._color)

    def note(self, text: str) -> None:
        """Print advice, or what was done."""
        if not self._quiet:
            click.echo(_encodable(clean(text, lines=True), sys.stderr), err=True, color=self._color)

    def hint(self, purpose: str, *command: str) -> None:
        """Print what to do next: a ``celery catchup`` command that can be pasted."""
        from celery_catchup.events.command_lines import command_line

        self.note(f"{purpose}: {command_line(*command)}")

    def time(self, value: datetime) -> str:
        """Format a time as ``2026-02-07T10:00:00Z``; with milliseconds only when there are any."""
        return self._time(value, "T", precision([value], shortest="seconds"))

    def _time(self, value: datetime, separator: str, timespec: str) -> str:
        return value.astimezone(self._zone).isoformat(separator, timespec).replace("+00:00", "Z")

    def printed_as_json(self, value: Any, *, line: bool = False) -> bool:
        """Print the value, on one line where several follow, and return True if JSON was asked for."""
        from celery_catchup.operations.json_form import as_json

        if self.as_json:
            # ASCII only, so that no character of a name is a control character.
            click.echo(json.dumps(as_json(value), indent=None if line else 2), color=self._color)
        return self.as_json

    def table(
        self, head: Sequence[str], rows: Iterable[Sequence[object]], *, timespec: str | None = None
    ) -> None:
        """Print rows in columns; a dash stands for None. Times are as precise as ``timespec``, by default
        each as it needs to be."""
        from tabulate import tabulate

        cells = [[self.painted(clean(self._cell(value, timespec))) for value in row] for row in rows]
        for line in tabulate(cells, head, tablefmt="simple", disable_numparse=True).splitlines():
            self.out(line.rstrip())

    def _cell(self, value: object, timespec: str | None) -> str:
        if isinstance(value, datetime):
            return self._time(value, " ", timespec or precision([value]))
        return "-" if value is None else str(value)

    def painted(self, word: str) -> str:
        """Colour the word if it is a state or a verdict and stdout is a terminal."""
        colour = None if self._color is False else _COLOURS.get(word)
        return click.style(word, fg=colour) if colour and sys.stdout.isatty() else word

    def facts(self, pairs: Iterable[tuple[str, object]]) -> None:
        """Print one ``Name: value`` per line, except where the value is None."""
        for name, value in pairs:
            match value:
                case None:
                    continue
                case datetime():
                    text = self.time(value)
                case timedelta():
                    text = length(value)
                case _:
                    text = str(value)
            self.out(f"{clean(name)}: {clean(text)}")

    @contextmanager
    def progress(self, total: int, *, label: str) -> Iterator[Callable[..., None]]:
        """Show a bar if stderr is a terminal; call the yielded function with the number of steps done."""
        if self._quiet or not sys.stderr.isatty():
            yield lambda _=1: None
            return
        with click.progressbar(length=total, label=label, file=sys.stderr) as bar:
            yield lambda steps=1: bar.update(steps)

    @property
    def can_ask(self) -> bool:
        """Whether a question has an answer: from a terminal, or from ``-f``."""
        return self._force or sys.stdin.isatty()

    def confirm(self, question: str, *, action: str) -> None:
        """Ask before an action; end the command on "no", and without a terminal unless forced."""
        if self._force:
            return
        if not self.can_ask:
            raise CommandError(
                f"refusing to {action} without confirmation, and there is no terminal to ask; "
                "add -f to do it, or -n to see what it would do"
            )
        if not click.confirm(clean(question), err=True):
            raise CommandError("nothing was changed")


def clean(text: str, *, lines: bool = False) -> str:
    """Remove terminal control sequences; put the text on one line unless ``lines`` are kept."""
    plain = _ESCAPES.sub("", text)
    if plain.isprintable():
        return plain
    if lines:
        return "\n".join(_printable(line.replace("\t", "    ")) for line in plain.split("\n"))
    return _printable(" ".join(plain.split()))


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def _encodable(text: str, stream: TextIO) -> str:
    """Replace characters that the terminal's encoding lacks by question marks."""
    encoding = stream.encoding or "utf-8"
    return text.encode(encoding, "replace").decode(encoding)


def precision(times: Iterable[datetime | None], *, shortest: str = "minutes") -> str:
    """Return how precisely to print times, so that none of these is cut: a copied slot is the same slot."""
    known = [time for time in times if time is not None]
    if any(time.microsecond for time in known):
        return "milliseconds"
    return "seconds" if any(time.second for time in known) else shortest


def length(duration: timedelta | None) -> str:
    """Format a duration by its two largest units: ``2h33m``, ``45s``, ``0.7s``."""
    if duration is None:
        return "-"
    seconds = duration.total_seconds()
    if seconds < 0:
        return f"-{length(-duration)}"
    if seconds < 10:
        return f"{seconds:.1f}s" if seconds % 1 >= 0.05 else f"{seconds:.0f}s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "m"), (rest, "s")]
    largest = next(index for index, (count, _) in enumerate(parts) if count)
    return "".join(f"{count}{unit}" for count, unit in parts[largest : largest + 2] if count)
