"""The store's scripts and the dispatcher fill in a template in the same way."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from importlib.resources import files
from typing import Any

import pytest
import redis
from hypothesis import given, settings
from hypothesis import strategies as st

from celery_catchup.dispatch import render
from celery_catchup.dispatch.placeholders import placeholder, to_json, value_placeholder
from celery_catchup.model import Trigger
from celery_catchup.testing.embedded_server import EmbeddedServer

RENDER = "return render(cjson.decode(ARGV[1]), ARGV[2], cjson.decode(ARGV[3]), tonumber(ARGV[4]))"

NAMES = (
    "task_id",
    "delivery_tag",
    "run_id",
    "entry",
    "trigger_type",
    "scheduled_time",
    "interval_start",
    "interval_end",
    "expires",
    "eta",
    "unknown",
)
# From year 1 to year 9999, which is where Python's dates end.
instants = st.integers(-62_135_596_800_000 + 10**9, 253_402_300_799_999 - 10**9)
near_now = st.integers(0, 4_102_444_800_000)
spans = st.none() | st.integers(-(10**9), 10**9)
texts = st.text() | st.sampled_from([f"@catchup:{name}@" for name in NAMES])
trees = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts,
    lambda children: st.lists(children, max_size=3) | st.dictionaries(texts, children, max_size=3),
    max_leaves=10,
)


@st.composite
def runs(draw: st.DrawFn) -> dict[str, Any]:
    run: dict[str, Any] = {
        "slot": draw(instants | near_now),
        "trigger": str(draw(st.sampled_from(Trigger))),
        "attempt": draw(st.integers(1, 10**6)),
        "sends": draw(st.integers(1, 10**6)),
    }
    if draw(st.booleans()):
        run["entry"] = draw(st.text(st.characters(min_codepoint=32, max_codepoint=126)))
    previous = draw(st.none() | instants)
    return run if previous is None else run | {"previous": previous}


@st.composite
def templates(draw: st.DrawFn) -> dict[str, Any]:
    message = {
        "theirs": draw(trees),
        "is_catchup": value_placeholder("is_catchup"),
        "whole": value_placeholder("unknown"),
    }
    message |= {f"h_{name}": draw(st.sampled_from(["", "<", "ü"])) + placeholder(name) for name in NAMES}
    spans_given = {"expires_ms": draw(spans), "countdown_ms": draw(spans)}
    return {"message": to_json(message), **{name: ms for name, ms in spans_given.items() if ms is not None}}


@pytest.fixture(scope="module")
def lua_render(valkey: EmbeddedServer) -> Iterator[Callable[..., str]]:
    valkey.start()
    library = (files("celery_catchup.store") / "lua" / "library.lua").read_text()
    with redis.Redis.from_url(valkey.url()) as client:
        script = client.register_script(f"{library}\n{RENDER}")

        def call(template: dict[str, Any], run_id: str, run: dict[str, Any], now: int) -> str:
            answer: Any = script(args=[json.dumps(template), run_id, json.dumps(run), now])
            return str(answer.decode())

        yield call


@settings(max_examples=300, deadline=None)
@given(template=templates(), run_id=st.uuids(), run=runs(), now=instants | near_now)
def test_both_give_the_same_message(
    lua_render: Callable[..., str], template: dict[str, Any], run_id: Any, run: dict[str, Any], now: int
) -> None:
    ours = render(template, str(run_id), run, now)

    assert lua_render(template, str(run_id), run, now) == ours
    json.loads(ours)


@settings(max_examples=100, deadline=None)
@given(template=templates(), run=runs(), name=st.text(min_size=1))
def test_any_name_arrives_as_it_is(
    lua_render: Callable[..., str], template: dict[str, Any], run: dict[str, Any], name: str
) -> None:
    named = {**run, "entry": name}
    ours, theirs = render(template, "r1", named, 0), lua_render(template, "r1", named, 0)

    assert json.loads(ours) == json.loads(theirs)
    assert json.loads(ours)["h_entry"].endswith(name)
