"""``celery catchup entries``: list all entries; create, change and delete those that are stored."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from celery_catchup.cli.command import EX_MISSED, operator_command
from celery_catchup.cli.groups import DefaultCommandGroup
from celery_catchup.cli.matches import large_groups, show_matches
from celery_catchup.cli.parameters import (
    Function,
    dry_run_option,
    entries_argument,
    force_option,
    json_option,
    option,
    zone_option,
)
from celery_catchup.cli.screen import CommandError, Screen, clean
from celery_catchup.config.name_patterns import group_of
from celery_catchup.error_text import counted, shortened

if TYPE_CHECKING:
    from celery_catchup.operations import Operator
    from celery_catchup.operations.entries import EntryView
    from celery_catchup.stored_entries.changes import Applied

_HEAD = ("Entry", "Schedule", "Catch-up", "Overlap", "Watermark", "Next", "State")
_LONGEST = 60
"""Characters of a value in the table of differences."""


@click.group(
    "entries",
    cls=DefaultCommandGroup,
    default="list",
    short_help="List the beat schedule; change its stored entries.",
)
def command() -> None:
    """List every entry of the beat schedule: its policy, its watermark, its next slot and its state.

    Many entries of one for_each are one line; name them ('sync[*]') to list each.

    An entry with a dash under Catch-up has no policy: it runs as under Celery's own scheduler. The commands
    change stored entries, which beat uses from its next tick on; declared ones are changed in the settings.
    """


@operator_command("list", parent=command, hidden=True)
@entries_argument()
@zone_option
@json_option
def _list(operator: Operator, screen: Screen, *, entries: tuple[str, ...]) -> None:
    """List every entry of the beat schedule: its policy, its watermark, its next slot and its state."""
    from celery_catchup.operations.entries import list_entries

    found = list_entries(operator, entries or None)
    if screen.printed_as_json({"entries": found}):
        return
    groups = {} if entries else large_groups(one.name for one in found)
    by_name, rows = {one.name: one for one in found}, dict[str, list[object]]()
    for one in found:
        group = group_of(one.name)
        if group not in groups:
            rows[one.name] = _row(one)
        elif group not in rows:
            rows[group] = _group_row(group, [by_name[name] for name in groups[group]])
    screen.table(_HEAD, rows.values())


def _group_row(group: str, views: Sequence[EntryView]) -> list[object]:
    """Return one row for all entries of a group: ``40 entries, 2 failing``."""
    first = _row(views[0])
    counts = {
        "failing": sum(one.failing is not None for one in views),
        "held": sum(bool(one.held) for one in views),
        "paused": sum(one.paused and not one.held for one in views),
        "stopped": sum(bool(one.stopped_by) for one in views),
        "running": sum(bool(one.running) for one in views),
    }
    parts = [f"{len(views)} entries", *(f"{count} {word}" for word, count in counts.items() if count)]
    following = min((one.next for one in views if one.next is not None), default=None)
    return [group, *first[1:4], None, following, ", ".join(parts)]


def _row(one: EntryView) -> list[object]:
    catchup = "off" if one.catchup == "off" else " ".join(filter(None, (one.catchup, one.window)))
    overlap = one.overlap_policy or None
    zone = "" if one.timezone in (None, "UTC") else f" ({one.timezone})"
    return [one.name, one.schedule + zone, catchup or None, overlap, one.watermark, one.next, _state(one)]


def _state(one: EntryView) -> str:
    if one.failing is not None:
        return f"failing ({one.failing})"
    if one.held:
        return f"held ({one.held} runs)"
    if one.paused:
        return f"paused ({one.pause_reason})" if one.pause_reason else "paused"
    parts = [
        f"{one.overdue} overdue" if one.overdue else "",
        f"stopped by {', '.join(one.stopped_by)}" if one.stopped_by else "",
        f"{one.running} running" if one.running else "",
        f"{one.queued} queued" if one.queued else "",
        f"{one.waiting} waiting" if one.waiting else "",
    ]
    return ", ".join(filter(None, parts)) or ("finished" if one.finished else "idle")


# -- one entry -----------------------------------------------------------------------------


def _as_json(ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
    """Parse an option as JSON."""
    try:
        return None if value is None else json.loads(value)
    except (ValueError, RecursionError) as error:
        raise click.BadParameter(f"expected JSON, got {value!r}: {error}") from None


def _labels(ctx: click.Context, param: click.Parameter, value: Sequence[str]) -> dict[str, str]:
    """Parse ``NAME=VALUE``."""
    for one in value:
        if "=" not in one:
            raise click.BadParameter(f"expected NAME=VALUE such as team=billing, got {one!r}")
    return dict(one.split("=", 1) for one in value)


_FIELDS = (
    option("--task", group="Entry", metavar="NAME", help="The task to run."),
    option("--schedule", group="Entry", metavar="CRON", help="A cron string such as '0 6 * * *'."),
    option("--every", group="Entry", metavar="D", help="An interval such as 15m, in place of a cron string."),
    option("--at", group="Entry", metavar="TIME", help="Run once, at this time, such as 2026-12-01T09:00Z."),
    option(
        "--args", group="Entry", metavar="JSON", callback=_as_json, help="Positional arguments, a JSON array."
    ),
    option(
        "--kwargs", group="Entry", metavar="JSON", callback=_as_json, help="Keyword arguments, a JSON object."
    ),
    option(
        "--options",
        group="Entry",
        metavar="JSON",
        callback=_as_json,
        help="Options of apply_async, a JSON object.",
    ),
    option("--window", group="Entry", metavar="D", help="Recover slots missed within this time, such as 6h."),
    option(
        "--catchup",
        group="Entry",
        metavar="JSON",
        callback=_as_json,
        help="The whole policy, a JSON object or false.",
    ),
    option("--description", group="Entry", metavar="TEXT", help="A note for people."),
    option(
        "--label",
        "labels",
        group="Entry",
        metavar="NAME=VALUE",
        multiple=True,
        callback=_labels,
        help="A label; all labels are replaced.",
    ),
    option("--enable/--disable", "enabled", group="Entry", default=None, help="Whether it runs."),
)


def _field_options(function: Function) -> Function:
    for one in reversed(_FIELDS):
        function = one(function)
    return function


def _fields(given: Mapping[str, Any], *, policy: object = None) -> dict[str, Any]:
    """Return the fields that the options set; a window alone changes the present ``policy``."""
    found = {name: value for name, value in given.items() if value is not None}
    if not found.get("labels"):
        found.pop("labels", None)
    schedules = [name for name in ("schedule", "every", "at") if name in found]
    if len(schedules) > 1:
        raise click.UsageError(f"expected one of --schedule, --every and --at, got {' and '.join(schedules)}")
    if "window" in found and "catchup" in found:
        raise click.UsageError("expected one of --window and --catchup, got both")
    for name in ("every", "at"):
        if name in found:
            found["schedule"] = {name: found.pop(name)}
    if "window" in found:
        found["catchup"] = {**(policy if isinstance(policy, dict) else {}), "window": found.pop("window")}
    return found


@operator_command("add", parent=command, short_help="Create a stored entry.")
@click.argument("entry", metavar="ENTRY")
@_field_options
@dry_run_option
@json_option
def _add(operator: Operator, screen: Screen, *, entry: str, dry_run: bool, **given: Any) -> int:
    """Create an entry. Beat runs it from its next tick on, without a restart.

    It counts from now on. Without --window or --catchup, slots that are missed never run.
    """
    from celery_catchup.stored_entries.stored_entry import DEFAULTS

    stored, fields = operator.stored_entries, {"task": "", "schedule": "", **DEFAULTS, **_fields(given)}
    if dry_run:
        stored.check_free(entry)
        return _print_changes(screen, stored.apply([{**fields, "name": entry}], dry_run=True), dry_run=True)
    made = stored.create(entry, **fields)
    if not screen.printed_as_json(made):
        screen.out(f"Created {clean(made.name)} (revision {made.revision}).")
    return 0


@operator_command("edit", parent=command, short_help="Change a stored entry.")
@click.argument("entry", metavar="ENTRY")
@_field_options
@dry_run_option
@json_option
def _edit(operator: Operator, screen: Screen, *, entry: str, dry_run: bool, **given: Any) -> int:
    """Change an entry: the fields that are given, or, on a terminal, all of them in your editor ($EDITOR).

    The change is refused if the entry was changed while your editor was open.
    """
    from celery_catchup.stored_entries.stored_entry import DEFAULTS

    stored = operator.stored_entries
    before = stored.get(entry)
    fields = _fields(given, policy=before.catchup)
    fields = {**before.fields(), **fields} if fields else _edited(before.fields())
    if fields.get("name") != entry:
        raise click.UsageError("the name of an entry cannot be changed; add another, and delete this one")
    planned = stored.apply([fields], dry_run=True)
    if dry_run or not planned.changes:
        return _print_changes(screen, planned, dry_run=dry_run)
    changes = {name: value for name, value in (DEFAULTS | fields).items() if name != "name"}
    changed = stored.update(entry, revision=before.revision, **changes)
    if not screen.printed_as_json(changed):
        _print_changes(screen, planned)
    return 0


def _edited(fields: dict[str, Any]) -> dict[str, Any]:
    """Let the user change the fields in an editor; on a terminal only."""
    from celery_catchup.errors import ConfigurationError
    from celery_catchup.stored_entries.documents import read_document, write_document
    from celery_catchup.stored_entries.validation import parse_entries

    if not _can_edit():
        raise click.UsageError("give the fields to change, or run it on a terminal to use your editor")
    path = "entry.yaml" if _has_yaml() else "entry.json"
    text = write_document([fields], path=path)
    while True:
        edited = click.edit(text, extension=path.removeprefix("entry"))
        if edited is None:
            raise CommandError("nothing was changed")
        text = edited
        found = read_document(text, path=path)
        _, mistakes = parse_entries(found)
        if len(found) == 1 and not mistakes:
            (entry,) = found
            return dict(entry)
        click.echo(
            clean(str(ConfigurationError(mistakes)), lines=True) if mistakes else "expected one entry",
            err=True,
        )
        if not click.confirm("Edit again?", default=True, err=True):
            raise CommandError("nothing was changed")


def _can_edit() -> bool:
    return sys.stdin.isatty()


def _has_yaml() -> bool:
    from importlib.util import find_spec

    return find_spec("yaml") is not None


@operator_command("delete", parent=command, short_help="Delete stored entries.")
@click.argument("entries", metavar="ENTRY...", nargs=-1, required=True)
@force_option
@dry_run_option
@json_option
def _delete(operator: Operator, screen: Screen, *, entries: tuple[str, ...], dry_run: bool) -> int:
    """Delete stored entries, all of them or none; in patterns, * and ? are wildcards. Their history and
    watermarks are kept for a while."""
    stored = operator.stored_entries
    names = stored.names(entries)
    if not dry_run:
        show_matches(screen, entries, names)
        screen.confirm(f"Delete {counted(len(names), 'entry', 'entries')}?", action="delete entries")
    return _print_changes(screen, stored.delete_many(names, dry_run=dry_run), dry_run=dry_run)


# -- many entries --------------------------------------------------------------------------


@operator_command("apply", parent=command, short_help="Make the stored entries as a file says.")
@click.argument("file", metavar="FILE", type=click.Path(dir_okay=False, allow_dash=True))
@option(
    "--prune",
    group="Changes",
    metavar="NAME=VALUE",
    multiple=True,
    callback=_labels,
    help="Delete entries with these labels that the file does not name.",
)
@dry_run_option
@json_option
def _apply(operator: Operator, screen: Screen, *, file: str, prune: dict[str, str], dry_run: bool) -> int:
    """Create and change entries so that they are as FILE says, all or nothing; - reads standard input.

    The file is YAML or JSON: a list of entries, or one under the key 'entries', as 'export' writes it.
    Repeating it changes nothing. With -n the exit code is 3 if something would change.
    """
    from celery_catchup.stored_entries.documents import read_document

    try:
        with click.open_file(file, encoding="utf-8") as opened:
            text = opened.read()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{file} cannot be read: {error}") from None
    found = operator.stored_entries.apply(
        read_document(text, path=file), prune=prune or None, dry_run=dry_run
    )
    return _print_changes(screen, found, dry_run=dry_run)


@operator_command("export", parent=command, short_help="Write the stored entries to a file.")
@click.argument("file", metavar="[FILE]", default="-", type=click.Path(dir_okay=False, allow_dash=True))
@option("--prefix", group="Filter", default="", metavar="TEXT", help="Only names that begin so.")
@option(
    "--label",
    "labels",
    group="Filter",
    metavar="NAME=VALUE",
    multiple=True,
    callback=_labels,
    help="Only entries with this label.",
)
@option("--task", group="Filter", metavar="NAME", help="Only entries of this task.")
@json_option
def _export(
    operator: Operator, screen: Screen, *, file: str, prefix: str, labels: dict[str, str], task: str | None
) -> None:
    """Write the stored entries to FILE, or print them, as 'entries apply' reads them: YAML, or JSON if the
    file's name ends in .json or with -j."""
    from celery_catchup.stored_entries.documents import write_document

    found = operator.stored_entries.export(prefix=prefix, labels=labels, task=task)
    text = write_document(found, path="entries.json" if screen.as_json else file)
    try:
        with click.open_file(file, "w", encoding="utf-8", atomic=file != "-") as opened:
            opened.write(text)
    except OSError as error:
        raise CommandError(f"{file} cannot be written: {error}") from None
    if file != "-":
        screen.note(f"Wrote {counted(len(found), 'entry', 'entries')} to {file}.")


def _print_changes(screen: Screen, found: Applied, *, dry_run: bool = False) -> int:
    """Print what changes; return the exit code, which is 3 if a dry run finds a difference."""
    if not screen.printed_as_json(found):
        rows = [
            [one.entry, str(one.action), *cells]
            for one in found.changes
            for cells in [[f.field, _value(f.was), _value(f.now)] for f in one.fields] or [[None] * 3]
        ]
        if rows:
            screen.table(("Entry", "Change", "Field", "Was", "Is" if not dry_run else "Would Be"), rows)
            screen.out()
        counts = Counter(str(one.action) for one in found.changes)
        parts = [f"{count} {'would be ' if dry_run else ''}{action}" for action, count in counts.items()]
        screen.out(f"{', '.join([*parts, f'{found.unchanged} unchanged'])}.")
    return EX_MISSED if dry_run and found.changes else 0


def _value(value: object) -> str | None:
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value)
    return shortened(text, _LONGEST)
