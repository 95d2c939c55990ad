"""Error responses of the HTTP API: problem details (RFC 9457) with a stable code and all mistakes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus

from tornado.web import HTTPError

from celery_catchup.engine import DispatchFailedError
from celery_catchup.errors import (
    BackfillError,
    CatchupError,
    ConfigurationError,
    EntryChangedError,
    EntryError,
    EntryExistsError,
    EntryMissingError,
    Mistake,
    StoreError,
    TooManySlotsError,
)
from celery_catchup.flower.operators import BusyError
from celery_catchup.operations import RefusedError, UnknownEntryError, UnknownRunError
from celery_catchup.operations.refusals import AmbiguousIdError, KeyReusedError, NoPolicyError, RangeError


class ErrorCode(StrEnum):
    """Why a request failed; programs can rely on it."""

    INVALID_REQUEST = "invalid_request"
    INVALID_RANGE = "invalid_range"
    TOO_MANY_SLOTS = "too_many_slots"
    UNAUTHENTICATED = "unauthenticated"
    CHANGES_NOT_ALLOWED = "changes_not_allowed"
    CROSS_SITE = "cross_site"
    UNKNOWN_ENTRY = "unknown_entry"
    NOT_FOUND = "not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    AMBIGUOUS_ID = "ambiguous_id"
    NO_POLICY = "no_policy"
    ENTRY_EXISTS = "entry_exists"
    ENTRY_CHANGED = "entry_changed"
    TASK_NOT_ALLOWED = "task_not_allowed"
    KEY_REUSED = "idempotency_key_reused"
    REFUSED = "refused"
    BODY_TOO_LONG = "body_too_long"
    NOT_JSON = "not_json"
    BUSY = "busy"
    INVALID_CONFIGURATION = "invalid_configuration"
    INTERNAL_ERROR = "internal_error"
    STORE_UNAVAILABLE = "store_unavailable"


ERRORS: Mapping[ErrorCode, tuple[int, str]] = {
    ErrorCode.INVALID_REQUEST: (400, "The request has mistakes; they are listed."),
    ErrorCode.INVALID_RANGE: (400, "The range of time is impossible."),
    ErrorCode.TOO_MANY_SLOTS: (400, "The request is about more slots than one request may have."),
    ErrorCode.UNAUTHENTICATED: (401, "Authentication is required."),
    ErrorCode.CHANGES_NOT_ALLOWED: (403, "Flower is read-only, or has no authentication."),
    ErrorCode.CROSS_SITE: (403, "The request comes from a page of another site, or may do so."),
    ErrorCode.UNKNOWN_ENTRY: (404, "No such entry."),
    ErrorCode.NOT_FOUND: (404, "No such run, backfill or endpoint."),
    ErrorCode.METHOD_NOT_ALLOWED: (405, "The path has no such method."),
    ErrorCode.AMBIGUOUS_ID: (409, "Several ids begin like this one."),
    ErrorCode.NO_POLICY: (409, "The entry has no catch-up policy."),
    ErrorCode.ENTRY_EXISTS: (409, "The name is taken, by a stored or a declared entry."),
    ErrorCode.ENTRY_CHANGED: (412, "The entry has another revision than `If-Match` says."),
    ErrorCode.TASK_NOT_ALLOWED: (403, "No pattern of `catchup_allowed_tasks` matches the task."),
    ErrorCode.KEY_REUSED: (409, "The Idempotency-Key belongs to another request."),
    ErrorCode.REFUSED: (409, "The request cannot be carried out; nothing was changed."),
    ErrorCode.BODY_TOO_LONG: (413, "The body is too long."),
    ErrorCode.NOT_JSON: (415, "The body is not JSON."),
    ErrorCode.BUSY: (429, "Too many such requests at once; `Retry-After` says when to try again."),
    ErrorCode.INVALID_CONFIGURATION: (500, "The configuration has mistakes."),
    ErrorCode.INTERNAL_ERROR: (500, "An error in the server; its log has the details."),
    ErrorCode.STORE_UNAVAILABLE: (503, "The store cannot be reached."),
}
"""The status and the meaning of each code."""

_CODE_OF_STATUS = {status: code for code, (status, _) in ERRORS.items()} | {
    400: ErrorCode.INVALID_REQUEST,
    404: ErrorCode.NOT_FOUND,
    403: ErrorCode.CROSS_SITE,
    500: ErrorCode.INTERNAL_ERROR,
}


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a request failed, as problem details (RFC 9457). ``mistakes`` lists the mistakes of a request or
    of the configuration."""

    type: str
    title: str
    status: int
    detail: str
    code: ErrorCode
    mistakes: tuple[Mistake, ...]


class ApiError(HTTPError):
    """A request that fails with a code and a message."""

    def __init__(self, code: ErrorCode, message: str, mistakes: Sequence[Mistake] = ()) -> None:
        super().__init__(ERRORS[code][0], "%s", message)
        self.problem = _problem(code, message, mistakes)


def api_error(error: CatchupError) -> ApiError:
    """Convert an error of this package to an error response."""
    if isinstance(error, ConfigurationError):
        message = "The configuration has mistakes; fix them and restart Flower."
        return ApiError(ErrorCode.INVALID_CONFIGURATION, message, error.mistakes)
    return ApiError(_code(error), str(error))


def problem_of(error: object, status: int, reason: str) -> Problem:
    """Describe an exception. Of an unexpected one, only the reason phrase of the status is shown."""
    if isinstance(error, ApiError):
        return error.problem
    if isinstance(error, HTTPError) and error.log_message:
        reason = error.log_message % error.args if error.args else error.log_message
    return _problem(_CODE_OF_STATUS.get(status, ErrorCode.INTERNAL_ERROR), reason, status=status)


def _problem(
    code: ErrorCode, detail: str, mistakes: Sequence[Mistake] = (), *, status: int | None = None
) -> Problem:
    status = status or ERRORS[code][0]
    return Problem("about:blank", HTTPStatus(status).phrase, status, detail, code, tuple(mistakes))


def _code(error: CatchupError) -> ErrorCode:  # noqa: C901 - one line per class, the special ones first
    match error:
        case NoPolicyError():
            return ErrorCode.NO_POLICY
        case EntryExistsError():
            return ErrorCode.ENTRY_EXISTS
        case EntryChangedError():
            return ErrorCode.ENTRY_CHANGED
        case EntryError() if not isinstance(error, EntryMissingError):
            return ErrorCode.REFUSED
        case UnknownEntryError() | EntryMissingError():
            return ErrorCode.UNKNOWN_ENTRY
        case AmbiguousIdError():
            return ErrorCode.AMBIGUOUS_ID
        case UnknownRunError():
            return ErrorCode.NOT_FOUND
        case KeyReusedError():
            return ErrorCode.KEY_REUSED
        case RangeError() | BackfillError():
            return ErrorCode.INVALID_RANGE
        case BusyError():
            return ErrorCode.BUSY
        case TooManySlotsError():
            return ErrorCode.TOO_MANY_SLOTS
        case RefusedError():
            return ErrorCode.REFUSED
        case StoreError():
            return ErrorCode.STORE_UNAVAILABLE
        case DispatchFailedError():
            return ErrorCode.STORE_UNAVAILABLE if error.temporary else ErrorCode.REFUSED
        case _:
            return ErrorCode.INTERNAL_ERROR
