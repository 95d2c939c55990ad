"""Write the reference pages that follow from the code: ``python docs/generate.py``.

What the tables say is read from the models that read the settings, so they cannot disagree.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, timedelta
from pathlib import Path

from pydantic.fields import FieldInfo

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from celery_catchup.configuration import Declaration, load
from celery_catchup.durations import LONGEST, format_duration
from celery_catchup.errors import ConfigurationError
from celery_catchup.policy import Policy, SchedulePolicy
from celery_catchup.readings import Reads
from celery_catchup.settings import PREFIX, Settings
from celery_catchup.written import Written

HERE = Path(__file__).resolve().parent
SETTINGS_PAGE = HERE / "reference" / "settings.md"
SETTINGS_TEXT = HERE / "reference" / "settings.md.in"


def settings_page() -> str:
    """The page about settings: its text, with the tables put in."""
    text = SETTINGS_TEXT.read_text(encoding="utf-8")
    fields = ["Field", "Also", "Values", "Default", "Meaning"]
    tables = {
        "{settings}": table(["Setting", "Values", "Default", "Meaning"], settings_rows()),
        "{policy}": table(fields, policy_rows(Policy)),
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
        yield [f"`{PREFIX}{name}`", values(field), default(field), str(field.description)]


def policy_rows(model: type[Written]) -> Iterator[list[str]]:
    """One row for each field of a policy."""
    for name, field in model.model_fields.items():
        others = [f"`{other}`" for other, own in model.spellings().items() if own == name != other]
        yield [f"`{name}`", ", ".join(others), values(field), default(field), str(field.description)]


def values(field: FieldInfo) -> str:
    """What may be written there."""
    return next(part.says for part in field.metadata if isinstance(part, Reads))


def default(field: FieldInfo) -> str:
    """What holds when nothing is written."""
    if field.default is None or field.default == {}:
        return "none"
    if isinstance(field.default, timedelta):
        return f"`{format_duration(field.default)}`"
    return f"`{field.default}`" if field.default != "" else "empty"


def table(head: list[str], rows: Iterable[list[str]]) -> str:
    """A Markdown table."""
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *rows])


if __name__ == "__main__":
    SETTINGS_PAGE.write_text(settings_page(), encoding="utf-8")
