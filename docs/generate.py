"""Write the reference pages that follow from the code: ``python docs/generate.py``.

What the tables say is read from the models that read the settings, and from the commands and
what they return, so they cannot disagree.
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
from pydantic.fields import FieldInfo

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from celery_catchup import events, signals
from celery_catchup.cli import catchup
from celery_catchup.config.configuration import Declaration, load
from celery_catchup.config.durations import LONGEST, format_duration
from celery_catchup.config.fields import FieldParser, UserModel
from celery_catchup.config.overlap_policy import OverlapPolicy
from celery_catchup.config.policy import Policy, SchedulePolicy
from celery_catchup.config.settings import PREFIX, Settings
from celery_catchup.errors import ConfigurationError
from celery_catchup.metrics import catalogue, samples
from celery_catchup.model import SkipReason
from celery_catchup.operations import (
    backfills,
    dead_letters,
    doctor,
    drift,
    entries,
    import_state,
    manual_runs,
    pauses,
    previews,
    runs,
    watermarks,
)
from celery_catchup.operations import status as states
from celery_catchup.operations.json_form import camel
from docs import http_api

HERE = Path(__file__).resolve().parent
SETTINGS_PAGE = HERE / "reference" / "settings.md"
SETTINGS_TEXT = HERE / "reference" / "settings.md.in"
EVENTS_PAGE = HERE / "reference" / "events.md"
EVENTS_TEXT = HERE / "reference" / "events.md.in"
METRICS_PAGE = HERE / "reference" / "metrics.md"
METRICS_TEXT = HERE / "reference" / "metrics.md.in"
RUN_STATES_PAGE = HERE / "reference" / "run-states.md"
RUN_STATES_TEXT = HERE / "reference" / "run-states.md.in"
COMMANDS_PAGE = HERE / "reference" / "cli.md"
COMMANDS_TEXT = HERE / "reference" / "cli.md.in"

PRINTED: dict[str, tuple[str, type]] = {
    "preview": ("previews", previews.Preview),
    "status": ("", states.Status),
    "entries": ("entries", entries.EntryView),
    "runs": ("", runs.Runs),
    "runs --state skipped": ("skipped", runs.Skipped),
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
    "dlq replay, discard": ("runs", dead_letters.HandledRun),
    "import": ("entries", import_state.ImportedEntry),
    "doctor": ("", doctor.Examination),
}
"""What each command prints with -j: an object of that kind, or a list of them under that name."""


OVERLAP_HEAD = ["`overlap_policy`", "While a run of the entry is active", "Of several missed slots"]


def settings_page() -> str:
    """The page about settings: its text, with the tables put in."""
    text = SETTINGS_TEXT.read_text(encoding="utf-8")
    fields = ["Field", "Also", "Values", "Default", "Meaning"]
    tables = {
        "{settings}": table(["Setting", "Values", "Default", "Meaning"], settings_rows()),
        "{policy}": table(fields, policy_rows(Policy)),
        "{overlap}": table(OVERLAP_HEAD, overlap_rows()),
        "{schedule_policy}": table(fields, policy_rows(SchedulePolicy)),
        "{longest}": f"`{format_duration(LONGEST)}`",
        "{mistakes}": mistakes(),
    }
    for mark, content in tables.items():
        text = text.replace(mark, content)
    return text


def mistakes() -> str:
    """What a user with three mistakes sees."""
    raw = {"catchup_entries": {"report": {"select": "newest", "windw": "6h"}, "nightly": "6h"}}
    declared = {"report": Declaration("30 6 * * *"), "hourly-etl": Declaration("0 * * * *")}
    try:
        load(raw, declared=declared, timezone=UTC)
    except ConfigurationError as error:
        return str(error)
    raise AssertionError("the example has no mistake in it any more")


def settings_rows() -> Iterator[list[str]]:
    """One row for each app-wide setting."""
    for name, field in Settings.model_fields.items():
        yield [f"`{PREFIX}{name}`", values(field), default(field), " ".join(str(field.description).split())]


def policy_rows(model: type[UserModel]) -> Iterator[list[str]]:
    """One row for each field of a policy."""
    for name, field in model.model_fields.items():
        others = [f"`{other}`" for other, own in model.spellings().items() if own == name != other]
        yield [
            f"`{name}`",
            ", ".join(others),
            values(field),
            default(field),
            " ".join(str(field.description).split()),
        ]


def overlap_rows() -> Iterator[list[str]]:
    """One row for each overlap policy."""
    for one in OverlapPolicy:
        yield [f"`{one}`", one.rule.while_active, one.rule.of_missed]


def values(field: FieldInfo) -> str:
    """What may be written there."""
    return next(part.says for part in field.metadata if isinstance(part, FieldParser))


def default(field: FieldInfo) -> str:
    """What holds when nothing is written."""
    if field.default is None or field.default == {}:
        return "none"
    if isinstance(field.default, timedelta):
        return f"`{format_duration(field.default)}`"
    return f"`{field.default}`" if field.default != "" else "empty"


# -- skip reasons ----------------------------------------------------------------------------


def run_states_page() -> str:
    """The page about run states: its text, with the table of skip reasons put in."""
    rows = [[f"`{reason}`", str(reason.rule.severity), reason.rule.meaning] for reason in SkipReason]
    reasons = table(["reason", "counts as", "meaning"], rows)
    return RUN_STATES_TEXT.read_text(encoding="utf-8").replace("{reasons}", reasons)


# -- events ----------------------------------------------------------------------------------


def events_page() -> str:
    """The page about events and signals: its text, with the catalogue put in."""
    text = EVENTS_TEXT.read_text(encoding="utf-8")
    head = ["Event", "Meaning", "Fields"]
    tables = {
        "{beat}": table(head, map(event_row, typing.get_args(events.BeatEvent))),
        "{worker}": table(head, map(event_row, typing.get_args(events.WorkerEvent))),
        "{signals}": table(["Signal", "Sent from", "Arguments"], signal_rows()),
    }
    for mark, content in tables.items():
        text = text.replace(mark, content)
    return text


def event_row(kind: Any) -> list[str]:
    """One kind of event: name, meaning, fields with their types."""
    properties = [name for name, value in vars(kind).items() if isinstance(value, property)]
    told = [f"`{field.name}` {field.type}".replace("|", "or") for field in fields(kind)]
    return [
        f"`{kind.__name__}`",
        paragraphs(kind.__doc__),
        ", ".join([*told, *map("`{}`".format, properties)]),
    ]


def signal_rows() -> Iterator[list[str]]:
    """One row for each signal."""
    for kind, signal in signals.SIGNALS.items():
        arguments = ", ".join(f"`{name}`" for name in sorted(signal.providing_args))
        yield [f"`{signal.name}`", f"`{kind.__name__}`", arguments]


# -- metrics ---------------------------------------------------------------------------------


def metrics_page() -> str:
    """The page about metrics: its text, with the catalogue put in."""
    text = METRICS_TEXT.read_text(encoding="utf-8")
    head = ["Metric", "Kind", "Labels", "Meaning"]
    bounds = [f"{bound:,}" for bound in catalogue.LAG_BOUNDS]
    parts = {
        "{store}": table(head, metric_rows(in_beat=False)),
        "{beat}": table(head, metric_rows(in_beat=True)),
        "{lag}": ", ".join(bounds[:-1]) + f" and {bounds[-1]}",
        "{entries}": f"{samples.MOST_ENTRIES:,}",
    }
    for mark, content in parts.items():
        text = text.replace(mark, content)
    return text


def metric_rows(*, in_beat: bool) -> Iterator[list[str]]:
    """One row for each metric that is told there."""
    for one in catalogue.METRICS.values():
        if one.in_beat == in_beat:
            yield [f"`{one.exposed}`", str(one.kind), ", ".join(f"`{name}`" for name in one.labels), one.help]


# -- commands --------------------------------------------------------------------------------


def commands_page() -> str:
    """The page about the commands: its text, with what is read from the commands put in."""
    text = COMMANDS_TEXT.read_text(encoding="utf-8")
    parts = {
        "{commands}": "\n\n".join(command_texts()),
        "{printed}": "\n".join(f"| {' | '.join(row)} |" for row in printed_rows()),
        "{schema}": "\n\n".join(schemas()),
    }
    for mark, content in parts.items():
        text = text.replace(mark, content)
    return text


def command_texts() -> Iterator[str]:
    """One section for each command, one below it for each of a group's."""
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
    """Heading, usage, text and options of a command."""
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
    """A docstring as Markdown, one line a paragraph; options look like what is typed."""
    joined = "\n\n".join(" ".join(part.split()) for part in re.split(r"\n\s*\n", text.strip()))
    return re.sub(r"(?<!\S)(--?[a-z][a-z-]*)", r"`\1`", joined.replace("``", "`"))


def option_words(option: click.Option) -> str:
    """How an option is written."""
    words = ", ".join(f"`{word}`" for word in option.opts)
    if option.is_flag:
        return words
    if isinstance(option.type, click.Choice):
        return f"{words} " + " \\| ".join(f"`{choice}`" for choice in option.type.choices)
    kind = option.metavar or ("N" if isinstance(option.type, click.IntRange) else option.type.name.upper())
    return f"{words} {kind}"


def option_text(option: click.Option) -> str:
    """What an option means, and what holds without it."""
    extra = "Required." if option.required else ""
    if option.show_default:
        extra = f"Default: `{option.default}`."
    if option.multiple:
        extra = "May be given several times."
    return f"{paragraphs(option.help or '')} {extra}".strip()


# -- what they print -------------------------------------------------------------------------


def printed_rows() -> Iterator[list[str]]:
    """What each command prints with -j."""
    for command, (name, kind) in PRINTED.items():
        yield [f"`{command}`", f'`{{"{name}": […]}}`, a list of {link_to(kind)}' if name else link_to(kind)]


def schemas() -> Iterator[str]:
    """One section for each kind of object, in the order in which they are met."""
    waiting, done = [kind for _, kind in PRINTED.values()], set()
    while waiting:
        kind = waiting.pop(0)
        if kind in done:
            continue
        done.add(kind)
        hints = typing.get_type_hints(kind)
        rows = [[f"`{camel(field.name)}`", json_type(hints[field.name])] for field in fields(kind)]
        told = paragraphs(kind.__doc__ or "")
        yield f"### Object {json_name(kind)}\n\n{told}\n\n{table(['Field', 'Type'], rows)}"
        waiting[0:0] = [part for field in fields(kind) for part in objects_in(hints[field.name])]


def json_name(kind: type) -> str:
    """What a kind of object is called on the page."""
    return kind.__name__.removesuffix("View")


def link_to(kind: type) -> str:
    """A link to the section about a kind of object."""
    return f"[{json_name(kind)}](#object-{json_name(kind).lower()})"


def objects_in(hint: Any) -> list[type]:
    """The kinds of objects that a field holds."""
    if hint is previews.PlannedSlots:
        return [previews.PreviewSlot]
    if isinstance(hint, type) and is_dataclass(hint):
        return [hint]
    return [kind for part in typing.get_args(hint) for kind in objects_in(part)]


def json_type(hint: Any) -> str:
    """A type as JSON has it."""
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
    """A Markdown table."""
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *rows])


if __name__ == "__main__":
    SETTINGS_PAGE.write_text(settings_page(), encoding="utf-8")
    RUN_STATES_PAGE.write_text(run_states_page(), encoding="utf-8")
    METRICS_PAGE.write_text(metrics_page(), encoding="utf-8")
    EVENTS_PAGE.write_text(events_page(), encoding="utf-8")
    COMMANDS_PAGE.write_text(commands_page(), encoding="utf-8")
    http_api.PAGE.write_text(http_api.http_api_page(), encoding="utf-8")
