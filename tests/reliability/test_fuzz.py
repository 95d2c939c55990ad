"""Configurations made by chance: beat starts with them, or says in lines why not, at once."""

from __future__ import annotations

import contextlib
import io
import time
import warnings
from datetime import timedelta
from typing import Any

import pytest
from celery import Celery
from celery.schedules import crontab
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from celery_catchup.beat.scheduler import EX_CONFIG, Scheduler
from celery_catchup.config.policy import Policy
from celery_catchup.config.settings import PREFIX, Settings
from tests.property.test_any_configuration import anything, scalars
from tests.results import Recorder
from tests.security.test_keys import HOSTILE

NOWHERE = "redis://127.0.0.1:1/0"
SLOWEST = 1.0
"""Seconds of the processor's time; a shared machine may take longer by the clock."""
HARMLESS = [name for name in Settings.model_fields if name not in ("entries", "source")]

crons = st.sampled_from(
    ["0 * * * *", "*/5 * * * *", "0 0 30 2 *", "61 * * * *", "@daily", "0 0 * * 1#2", "", "* * * * * *"]
)
schedules = st.one_of(
    crons,
    st.builds(crontab, minute=st.sampled_from(["0", "*/7", "5,10"]), hour=st.sampled_from(["*", "3"])),
    st.builds(timedelta, milliseconds=st.integers(-5, 10**7)),
    st.integers(-1, 10**6),
    st.lists(crons, max_size=3),
    st.fixed_dictionaries({"cron": crons}, optional={"window": st.sampled_from(["1h", "x", 5])}),
    anything,
)
policies = st.one_of(
    st.sampled_from(["6h", "1m", False, "6x"]),
    st.dictionaries(st.sampled_from(list(Policy.spellings())), scalars, max_size=4).map(
        lambda fields: {"window": "6h", **fields}
    ),
    anything,
)
names = st.one_of(st.sampled_from(["etl", "report", *HOSTILE]), st.text(max_size=12))
arguments = st.one_of(st.just({}), st.dictionaries(st.text(max_size=5), scalars, max_size=3))
options = st.one_of(
    st.just({}),
    st.dictionaries(
        st.sampled_from(
            ["expires", "countdown", "eta", "queue", "task_id", "headers", "serializer", "priority"]
        ),
        scalars,
        max_size=3,
    ),
)
entries = st.fixed_dictionaries(
    {"task": st.just("proj.etl"), "schedule": schedules, "kwargs": arguments, "options": options}
)
configurations = st.fixed_dictionaries(
    {
        "beat_schedule": st.dictionaries(names, entries, min_size=1, max_size=3),
        "catchup_entries": st.dictionaries(names, policies, max_size=3),
    },
    optional={PREFIX + name: st.one_of(scalars, st.sampled_from(["10s", "5d"])) for name in HARMLESS},
)
hurried = settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=60)


def start(conf: dict[str, Any]) -> str | None:
    """Build a beat of it, as the command does; what it says when it does not start."""
    app = Celery("proj", broker=NOWHERE, set_as_current=False)
    said = io.StringIO()
    try:
        app.conf.update(conf, result_expires=None)
        with contextlib.redirect_stderr(said):
            Scheduler(app).close()
    except SystemExit as ended:
        return said.getvalue() if ended.code == EX_CONFIG else f"exit code {ended.code}"
    finally:
        app.close()
    return None


def check(conf: dict[str, Any]) -> None:
    took, said = SLOWEST, None
    for _ in range(3):  # in a long session Python's garbage collector may take a second for itself
        begun = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Celery's, about settings that it would like otherwise
            said = start(conf)
        took = time.process_time() - begun
        if took < SLOWEST:
            break
    assert took < SLOWEST
    if said is not None:
        head, *lines = said.splitlines()
        assert head.startswith("celery_catchup: ")
        assert "mistake" in head
        assert lines
        strange = [
            line for line in lines if not (line.startswith("  ") and line.isprintable() and len(line) < 800)
        ]
        assert strange == []
        assert "Traceback" not in said


@hurried
@given(configurations)
def test_a_beat_starts_or_says_why_not(conf: dict[str, Any]) -> None:
    check(conf)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_ten_thousand_configurations(record_result: Recorder) -> None:
    count = 0

    @settings(hurried, max_examples=10_000)
    @given(configurations)
    def many(conf: dict[str, Any]) -> None:
        nonlocal count
        count += 1
        check(conf)

    many()
    record_result("configurations by chance", tried=count, tracebacks=0)
    assert count >= 10_000
