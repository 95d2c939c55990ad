"""What is read from outside: bounded in time, and never code."""

from __future__ import annotations

import ast
import pickle
import random
import re
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from celery_catchup.config.settings import MOST_PER_BATCH
from celery_catchup.dispatch.header_names import ENTRY, RUN_ID
from celery_catchup.errors import CronError
from celery_catchup.store.store import all_scripts, read_json, read_run
from celery_catchup.timetables.cron_dialects import Dialect, parse_cron
from celery_catchup.timetables.zones import zone_named
from celery_catchup.worker_plugin.deliveries import LONGEST, read_delivery
from tests.architecture.sources import modules, tree
from tests.integration import workers

ROOT = Path(__file__).resolve().parents[2]
NOW = 1_770_458_400_000
ALLOWED = {"celery", "croniter", "kombu", "pydantic", "redis", "tabulate", "tzdata"}
GOOD = "* 1 2 3 */2 */7 0 1-3 1-5/2 1,2 5-1".split()
BAD = "*/0 59 60 L W 15W 5#2 mon-fri jan ? H R(1-5) @daily , - / 99999999999 é".split()


def hostile_crons(count: int) -> list[str]:
    """Expressions that are nearly right, always the same ones."""
    chance = random.Random(4)
    made = ["0 0 30 2 *", "0 0 31 2,4,6,9,11 *", "0 0 29 2 1#5", "* " * 5000, ",".join("0" * 60) + " * * * *"]
    while len(made) < count:
        made.append(" ".join(chance.choice(GOOD * 3 + BAD) for _ in range(chance.choice([4, 5, 5, 5, 6]))))
    return made


def used(text: str, dialect: Dialect) -> bool:
    """Read an expression and ask it everything; whether it could be read."""
    try:
        table = parse_cron(text, dialect=dialect)
    except CronError:
        return False
    table.next_after(NOW)
    table.previous_before(NOW)
    table.minimum_distance()
    return True


def test_no_cron_string_takes_long() -> None:
    read = 0
    for text in hostile_crons(1000):
        for dialect in Dialect:
            took = 1.0
            for _ in range(5):  # the processor of a shared machine may be slow for a moment
                begun = time.process_time()
                readable = used(text, dialect)
                took = min(took, time.process_time() - begun)
                if took < 0.05:
                    break
            read += readable
            assert took < 0.05, text[:100]

    assert read > 50


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "/etc/localtime", "..\\..", "UTC\x00", "posixrules/../UTC"]
)
def test_a_zone_is_a_key_and_never_a_path(name: str) -> None:
    with pytest.raises(ValueError, match="time zone"):
        zone_named(name)


def test_without_zone_data_the_advice_is_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("celery_catchup.timetables.zones._names", frozenset)

    with pytest.raises(ValueError, match="pip install tzdata"):
        zone_named("Mars/Phobos")


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickled_value_is_no_record(protocol: int) -> None:
    stored = pickle.dumps({"entry": "x", "state": "queued", "slot": 1, "attempt": 1}, protocol=protocol)

    assert read_run(stored) is None
    assert read_json(stored) is None


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)


@settings(max_examples=300)
@given(anything, anything, anything)
def test_headers_of_any_type_are_a_delivery_of_ours_or_none(run: Any, entry: Any, properties: Any) -> None:
    delivery = read_delivery({RUN_ID: run, ENTRY: entry}, properties)

    fits = all(isinstance(value, str) and 0 < len(value) <= LONGEST for value in (run, entry))
    assert (delivery is not None) == fits


def test_a_pickled_message_is_refused_by_the_worker_and_the_next_run_is_executed(
    redis_url: str, tmp_path: Path
) -> None:
    site = workers.Site(redis_url, tmp_path)
    message = site.message("forged")
    message["content-type"] = "application/x-python-serialize"
    with workers.Worker(site) as worker:
        site.push(message)
        run = site.send_run()

        assert site.ended(run) == ["succeeded"]
        assert "ContentDisallowed" in worker.output
    site.close()


# -- the sources ---------------------------------------------------------------------------------


def imports() -> set[str]:
    """The top-level names that the package imports."""
    found: set[str] = set()
    for path in modules():
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module.partition(".")[0])
    return found


def test_no_file_format_that_can_do_more_than_hold_data_is_read() -> None:
    assert not imports() & {"toml", "tomli", "tomllib", "configparser", "pickle", "marshal", "xml"}


def test_yaml_is_read_as_data_only() -> None:
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "celery_catchup").rglob("*.py")]
    users = [text for text in texts if re.search(r"^ *import yaml$", text, re.MULTILINE)]

    assert len(users) == 1  # stored_entries/documents.py
    assert set(re.findall(r"_yaml\(path\)\.(\w+)", users[0])) == {"safe_load", "safe_dump"}


def test_the_package_needs_what_it_says_and_each_has_a_lowest_version_that_is_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = {re.match(r"[\w-]+", text)[0]: text for text in project["dependencies"]}  # type: ignore[index]
    oldest = (ROOT / "run.py").read_text(encoding="utf-8")

    assert set(needed) == ALLOWED
    assert all(">=" in text for name, text in needed.items() if name != "tzdata")
    for name in ("celery", "kombu", "redis"):
        floor = re.search(r">=([\d.]+)", needed[name])
        assert floor is not None
        assert f'"{name}=={floor[1]}.' in oldest


def test_scripts_are_bounded_and_read_no_keys_but_those_they_are_given() -> None:
    assert MOST_PER_BATCH <= 1000
    for script in all_scripts().values():
        assert not re.search(r"^\s*(while|repeat)\b|\b(loadstring|dofile)\(", script.text, re.MULTILINE)
        commands = set(re.findall(r"redis\.p?call\('(\w+)'", script.text))
        assert not commands & {"KEYS", "SCAN", "EVAL", "CONFIG", "FLUSHALL", "FLUSHDB", "SCRIPT"}
