"""The paths of version 0.1, below ``/api/catchup``: other names of the same endpoints, until version 0.3."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from celery_catchup.flower.api import responses
from celery_catchup.flower.api.endpoint import ENDPOINTS, Endpoint
from celery_catchup.flower.api.errors import Problem
from celery_catchup.operations import Operator, watermarks

OLD_ROOT = "/api/catchup"

Form = Callable[[Operator, Any, Any], object]
"""Convert a result of an endpoint to its old form: of the operator, the request and the result."""


def old_error(problem: Problem) -> object:
    """Return the old form of an error."""
    return {"error": {"message": problem.detail, "mistakes": problem.mistakes}}


def _list(name: str) -> Form:
    return lambda operator, request, page: {name: page.items}


def _schedules(operator: Operator, request: Any, page: responses.ResultPage[Any]) -> object:
    return {"entries": page.items, "total": page.total, "offset": request.offset, "limit": request.limit}


def _watermarks(operator: Operator, request: Any, page: responses.ResultPage[Any]) -> object:
    return watermarks.show_watermarks(operator, request.entry)


def _resumed(operator: Operator, request: Any, found: responses.Resumed) -> object:
    entry = {"entry": found.entry, "paused": False, "changed": found.changed}
    return {"entries": [entry], "previews": [] if found.preview is None else [found.preview]}


_UNCHANGED = (
    *("getStatus", "getOverview", "getSchedule", "getRun", "getDeadLetter", "getBackfill", "replayRun"),
    *("pauseBackfill", "resumeBackfill", "cancelBackfill"),
)
_FORMS: Mapping[str, tuple[str | None, Form, Mapping[str, str]]] = {
    # by the name of the endpoint: the old path if it was another, the old form, old names of parameters
    **{name: (None, lambda operator, request, found: found, {}) for name in _UNCHANGED},
    "listSchedules": (None, _schedules, {"offset": "cursor"}),
    "listRuns": (None, lambda operator, request, page: {"runs": page.items, "cursor": page.next}, {}),
    "listSkipped": (None, _list("skipped"), {}),
    "previewCatchup": (None, _list("previews"), {"limit": "slots"}),
    "getTimeline": (
        None,
        lambda operator, request, page: {"entries": {one.entry: one.slots for one in page.items}},
        {},
    ),
    "listOutages": (None, _list("outages"), {}),
    "listWatermarks": (None, _watermarks, {}),
    "listDeadLetters": (None, _list("deadLetters"), {}),
    "listBackfills": (None, _list("backfills"), {}),
    "createBackfill": (None, lambda operator, request, made: made.value, {}),
    "previewBackfill": ("/backfill/preview", lambda operator, request, found: found, {"limit": "slots"}),
    "pauseSchedule": (None, lambda operator, request, found: {"entries": [found]}, {}),
    "resumeSchedule": (None, _resumed, {}),
    "replayRuns": ("/replay", _list("runs"), {}),
    "discardRuns": ("/discard", _list("runs"), {}),
}
_WITHOUT_PAGES = {"previewCatchup", "getTimeline", "listOutages", "listBackfills"}


def old_endpoints() -> list[Endpoint]:
    """Return the endpoints of version 0.1, made of those of today."""
    return [_old(one, *_FORMS[one.name]) for one in ENDPOINTS if one.name in _FORMS]


def _old(one: Endpoint, path: str | None, form: Form, names: Mapping[str, str]) -> Endpoint:
    def operation(operator: Operator, request: Any) -> object:
        if one.name in _WITHOUT_PAGES:
            request = request.model_copy(update={"limit": 1000})
        return form(operator, request, one.operation(operator, request))

    return replace(one, path=path or one.path, operation=operation, old_names=names, creates=False)
