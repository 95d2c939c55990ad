"""Generate reference pages from the code: ``python docs/generate.py``.

The tables come from the models that parse the settings, from the commands and from the objects they
return, so page and code cannot disagree. The text around them is in ``reference/*.md.in``.
"""

from __future__ import annotations

import re
import sys
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any

import click

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from celery_catchup import events, signals
from celery_catchup.cli import catchup
from celery_catchup.config.configuration import Declaration, load
from celery_catchup.config.durations import LONGEST, format_duration
from celery_catchup.config.field_descriptions import FieldDescription, describe_fields
from celery_catchup.config.fields import UserModel
from celery_catchup.config.overlap_policy import OverlapPolicy
from celery_catchup.config.policy import Policy, SchedulePolicy
from celery_catchup.config.settings import PREFIX, Settings
from celery_catchup.errors import ConfigurationError
from celery_catchup.metrics import catalogue, samples
from celery_catchup.model import SkipReason
from celery_catchup.operations import (
    backfills,
    bench,
    clean_up,
    dead_letters,
    doctor,
    drift,
    entries,
    import_state,
    manual_runs,
    pauses,
    previews,
    runs,
    skipped_slots,
    slot_answers,
    watermarks,
    whatif,
)
from celery_catchup.operations import status as states
from celery_catchup.operations.json_form import camel
from celery_catchup.stored_entries import changes
from celery_catchup.stored_entries.stored_entry import EntryFields, StoredEntry
from docs import http_api

HERE = Path(__file__).resolve().parent
REFERENCE = HERE / "reference"

PRINTED: dict[str, tuple[str, type]] = {
    "preview": ("previews", previews.Preview),
    "status": ("", states.Status),
    "why": ("", slot_answers.Why),
    "whatif": ("", whatif.WhatIf),
    "entries": ("entries", entries.EntryView),
    "entries add, edit": ("", StoredEntry),
    "entries delete, apply, and all of them with -n": ("", changes.Applied),
    "runs": ("", runs.Runs),
    "runs --state skipped": ("skipped", skipped_slots.Skipped),
    "runs --follow": ("", runs.Run),
    "runs show": ("", runs.RunDetails),
    "run": ("", manual_runs.StartedRun),
    "backfill, backfill show, pause, resume, cancel": ("", backfills.BackfillView),
    "backfill -n": ("", previews.Preview),
    "backfill list": ("backfills", backfills.BackfillView),
    "pause": ("entries", pauses.Paused),
    "resume": ("", pauses.Resumption),
    "watermark show": ("", watermarks.WatermarkReport),
    "watermark set, reset": ("", watermarks.WatermarkMove),
    "drift, drift accept": ("", drift.Drift),
    "dlq list": ("deadLetters", dead_letters.DeadLetter),
    "dlq show": ("", dead_letters.DeadLetter),
    "dlq replay, discard, bury; runs resend, cancel": ("runs", dead_letters.HandledRun),
    "forget": ("", clean_up.ForgottenEntry),
    "purge": ("", clean_up.PurgedNamespace),
    "import": ("entries", import_state.ImportedEntry),
    "doctor": ("", doctor.Examination),
    "bench": ("", bench.Bench),
}
"""The object that each command prints with -j, or a list of them under a name."""


OVERLAP_HEAD = ["`overlap_policy`", "While a run of the entry is active", "Of several missed slots"]


def settings_page() -> str:
    """Return the page about settings."""
    fields = ["Field", "Also", "Values", "Default", "Meaning"]
    tables = {
        "{settings}": table(["Setting", "Values", "Default", "Meaning"], settings_rows()),
        "{policy}": table(fields, policy_rows(Policy)),
        "{overlap}": table(OVERLAP_HEAD, overlap_rows()),
        "{schedule_policy}": table(fields, policy_rows(SchedulePolicy)),
        "{longest}": f"`{format_duration(LONGEST)}`",
        "{mistakes}": mistakes(),
    }
    return fill("settings", tables)


def mistakes() -> str:
    """Return the error for a configuration with three mistakes."""
    raw = {"catchup_entries": {"report": {"select": "newest", "windw": "6h"}, "nightly": "6h"}}
    declared = {"report": Declaration("30 6 * * *"), "hourly-etl": Declaration("0 * * * *")}
    try:
        load(raw, declared=declared, timezone=UTC)
    except ConfigurationError as error:
        return str(error)
    raise AssertionError("the example has no mistake in it any more")


def settings_rows() -> Iterator[list[str]]:
    """Yield one row for each app-wide setting."""
    for field in describe_fields(Settings):
        yield [f"`{PREFIX}{field.name}`", field.values, default(field), field.meaning]


def policy_rows(model: type[UserModel]) -> Iterator[list[str]]:
    """Yield one row for each field of a policy."""
    for field in describe_fields(model):
        others = [f"`{other}`" for other, own in model.spellings().items() if own == field.name != other]
        yield [f"`{field.name}`", ", ".join(others), field.values, default(field), field.meaning]


def overlap_rows() -> Iterator[list[str]]:
    """Yield one row for each overlap policy."""
    for one in OverlapPolicy:
        yield [f"`{one}`", one.rule.while_active, one.rule.of_missed]


def default(field: FieldDescription) -> str:
    """Describe the default of a field."""
    if field.default is None:
        return "none"
    return f"`{field.default}`" if field.default else "empty"


# -- stored entries --------------------------------------------------------------------------


def stored_entries_page() -> str:
    """Return the page about stored entries."""
    rows = [
        [f"`{field.name}`", field.values, "needed" if field.required else default(field), field.meaning]
        for field in describe_fields(EntryFields)
    ]
    return fill("stored-entries", {"{fields}": table(["Field", "Values", "Default", "Meaning"], rows)})


# -- skip reasons ----------------------------------------------------------------------------


def run_states_page() -> str:
    """The page about run states: its text, with the table of skip reasons put in."""
    rows = [[f"`{reason}`", str(reason.rule.severity), reason.rule.meaning] for reason in SkipReason]
    reasons = table(["reason", "counts as", "meaning"], rows)
    return fill("run-states", {"{reasons}": reasons})


# -- events ----------------------------------------------------------------------------------


def events_page() -> str:
    """Return the page about events and signals."""
    head = ["Event", "Meaning", "Fields"]
    tables = {
        "{beat}": table(head, map(event_row, typing.get_args(events.BeatEvent))),
        "{worker}": table(head, map(event_row, typing.get_args(events.WorkerEvent))),
        "{signals}": table(["Signal", "Sent from", "Arguments"], signal_rows()),
    }
    return fill("events", tables)


def event_row(kind: Any) -> list[str]:
    """Return name, meaning and fields of an event."""
    properties = [name for name, value in vars(kind).items() if isinstance(value, property)]
    typed = [f"`{field.name}` {field.type}".replace("|", "or") for field in fields(kind)]
    return [
        f"`{kind.__name__}`",
        paragraphs(kind.__doc__),
        ", ".join([*typed, *map("`{}`".format, properties)]),
    ]


def signal_rows() -> Iterator[list[str]]:
    """Yield one row for each signal."""
    for kind, signal in signals.SIGNALS.items():
        arguments = ", ".join(f"`{name}`" for name in sorted(signal.providing_args))
        yield [f"`{signal.name}`", f"`{kind.__name__}`", arguments]


# -- metrics ---------------------------------------------------------------------------------


def metrics_page() -> str:
    """Return the page about metrics."""
    head = ["Metric", "Kind", "Labels", "Meaning"]
    bounds = [f"{bound:,}" for bound in catalogue.LAG_BOUNDS]
    parts = {
        "{store}": table(head, metric_rows(in_beat=False)),
        "{beat}": table(head, metric_rows(in_beat=True)),
        "{lag}": ", ".join(bounds[:-1]) + f" and {bounds[-1]}",
        "{entries}": f"{samples.MOST_ENTRIES:,}",
    }
    return fill("metrics", parts)


def metric_rows(*, in_beat: bool) -> Iterator[list[str]]:
    """Yield one row for each metric of beat, or of the store."""
    for one in catalogue.METRICS.values():
        if one.in_beat == in_beat:
            yield [f"`{one.exposed}`", str(one.kind), ", ".join(f"`{name}`" for name in one.labels), one.help]


# -- commands --------------------------------------------------------------------------------


def commands_page() -> str:
    """Return the page about commands."""
    parts = {
        "{commands}": "\n\n".join(command_texts()),
        "{printed}": "\n".join(f"| {' | '.join(row)} |" for row in printed_rows()),
        "{schema}": "\n\n".join(schemas()),
    }
    return fill("cli", parts)


def command_texts() -> Iterator[str]:
    """Yield one section for each command and subcommand."""
    context = click.Context(catchup, info_name="celery -A proj catchup")
    for name in catchup.list_commands(context):
        command = catchup.get_command(context, name)
        assert command is not None
        yield section(command, name, level=2)
        if isinstance(command, click.Group):
            for word, part in command.commands.items():
                if not part.hidden:
                    yield section(part, f"{name} {word}", level=3)


def section(command: click.Command, path: str, *, level: int) -> str:
    """Return heading, usage, text and options of a command."""
    shown = command
    if isinstance(command, click.Group) and getattr(command, "default", ""):
        shown = command.commands[command.default]
    arguments = [str(p.metavar) for p in shown.params if isinstance(p, click.Argument)]
    options = [p for p in shown.params if isinstance(p, click.Option)]
    words = ["celery -A proj catchup", path, *["[OPTIONS]"] * bool(options), *arguments]
    words += ["COMMAND"] if isinstance(shown, click.Group) else []
    parts = [f"{'#' * level} `{path}`", f"```text\n{' '.join(words)}\n```", paragraphs(command.help or "")]
    if options:
        parts.append(table(["Option", "Meaning"], ([option_words(o), option_text(o)] for o in options)))
    return "\n\n".join(parts)


def paragraphs(text: str) -> str:
    """Return a docstring as Markdown, one line per paragraph, with options as code."""
    joined = "\n\n".join(" ".join(part.split()) for part in re.split(r"\n\s*\n", text.strip()))
    return re.sub(r"(?<!\S)(--?[a-z][a-z-]*)", r"`\1`", joined.replace("``", "`"))


def option_words(option: click.Option) -> str:
    """Return how an option is written."""
    words = ", ".join(f"`{word}`" for word in option.opts)
    if option.is_flag:
        return words
    if isinstance(option.type, click.Choice):
        return f"{words} " + " \\| ".join(f"`{choice}`" for choice in option.type.choices)
    kind = option.metavar or ("N" if isinstance(option.type, click.IntRange) else option.type.name.upper())
    return f"{words} {kind}"


def option_text(option: click.Option) -> str:
    """Return the meaning of an option, and its default."""
    extra = "Required." if option.required else ""
    if option.show_default:
        extra = f"Default: `{option.default}`."
    if option.multiple:
        extra = "May be given several times."
    return f"{paragraphs(option.help or '')} {extra}".strip()


# -- output of the commands -------------------------------------------------------------------------


def printed_rows() -> Iterator[list[str]]:
    """Yield the output of each command with -j."""
    for command, (name, kind) in PRINTED.items():
        yield [f"`{command}`", f'`{{"{name}": […]}}`, a list of {link_to(kind)}' if name else link_to(kind)]


def schemas() -> Iterator[str]:
    """Yield one section for each kind of object, in the order in which they appear."""
    waiting, done = [kind for _, kind in PRINTED.values()], set()
    while waiting:
        kind = waiting.pop(0)
        if kind in done:
            continue
        done.add(kind)
        hints = typing.get_type_hints(kind)
        rows = [[f"`{camel(field.name)}`", json_type(hints[field.name])] for field in fields(kind)]
        text = paragraphs(kind.__doc__ or "")
        yield f"### Object {json_name(kind)}\n\n{text}\n\n{table(['Field', 'Type'], rows)}"
        waiting[0:0] = [part for field in fields(kind) for part in objects_in(hints[field.name])]


def json_name(kind: type) -> str:
    """Return the name of a kind of object on the page."""
    return kind.__name__.removesuffix("View")


def link_to(kind: type) -> str:
    """Return a link to the section about a kind of object."""
    return f"[{json_name(kind)}](#object-{json_name(kind).lower()})"


def objects_in(hint: Any) -> list[type]:
    """Return the kinds of objects in a field."""
    if hint is previews.PlannedSlots:
        return [previews.PreviewSlot]
    if isinstance(hint, type) and is_dataclass(hint):
        return [hint]
    return [kind for part in typing.get_args(hint) for kind in objects_in(part)]


def json_type(hint: Any) -> str:
    """Describe a type in JSON terms."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if hint is previews.PlannedSlots:
        return f"list of {json_type(previews.PreviewSlot)}"
    if origin in (UnionType, typing.Union):
        named = [json_type(part) for part in parts if part is not NoneType]
        return " or ".join([*dict.fromkeys(named), *["null"] * (NoneType in parts)])
    if origin in (tuple, list):
        return f"list of {json_type(parts[0])}"
    if origin is dict or hint in (dict, Mapping):
        return "object"
    if isinstance(hint, type) and is_dataclass(hint):
        return link_to(hint)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return ", ".join(f"`{choice.value}`" for choice in hint)
    names = {str: "text", bool: "boolean", int: "whole number", float: "number"}
    return {**names, datetime: "moment", timedelta: "seconds"}.get(hint, "anything")


def table(head: list[str], rows: Iterable[list[str]]) -> str:
    """Return a Markdown table."""
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *rows])


def fill(page: str, parts: Mapping[str, str]) -> str:
    """Return the text of a page, ``<page>.md.in``, with its placeholders filled."""
    text = (REFERENCE / f"{page}.md.in").read_text(encoding="utf-8")
    for placeholder, content in parts.items():
        text = text.replace(placeholder, content)
    return text


PAGES = {
    "settings": settings_page,
    "stored-entries": stored_entries_page,
    "run-states": run_states_page,
    "metrics": metrics_page,
    "events": events_page,
    "cli": commands_page,
    "http-api": http_api.http_api_page,
}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (REFERENCE / f"{name}.md").write_text(page(), encoding="utf-8")
