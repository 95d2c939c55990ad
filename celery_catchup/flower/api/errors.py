"""Error responses of the HTTP API: a status, a message, and all mistakes of a request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tornado.web import HTTPError

from celery_catchup.engine import DispatchFailedError
from celery_catchup.errors import BackfillError, CatchupError, ConfigurationError, Mistake, StoreError
from celery_catchup.operations import RefusedError, UnknownEntryError, UnknownRunError
from celery_catchup.operations.refusals import NoPolicyError


@dataclass(frozen=True, slots=True)
class ErrorDetails:
    """Why a request failed. ``mistakes`` lists every mistake of a request or of the configuration."""

    message: str
    mistakes: tuple[Mistake, ...] = ()


@dataclass(frozen=True, slots=True)
class Error:
    """The body of every response that reports a failure."""

    error: ErrorDetails


class ApiError(HTTPError):
    """A request that fails with a status and a message."""

    def __init__(self, status: int, message: str, mistakes: Sequence[Mistake] = ()) -> None:
        super().__init__(status, "%s", message)
        self.details = ErrorDetails(message, tuple(mistakes))


def api_error(error: CatchupError) -> ApiError:
    """Convert an error of this package to an error response."""
    if isinstance(error, ConfigurationError):
        message = "The configuration has mistakes; fix them and restart Flower."
        return ApiError(500, message, error.mistakes)
    return ApiError(_status(error), str(error))


def _status(error: CatchupError) -> int:
    match error:
        case NoPolicyError():
            return 409
        case UnknownEntryError() | UnknownRunError():
            return 404
        case RefusedError() | BackfillError():
            return 409
        case StoreError():
            return 503
        case DispatchFailedError():
            return 503 if error.temporary else 409
        case _:
            return 500


def error_details(error: object, reason: str) -> ErrorDetails:
    """Describe an exception. Of an unexpected one, only the reason phrase of the status is shown."""
    if isinstance(error, ApiError):
        return error.details
    if isinstance(error, HTTPError) and error.log_message:
        return ErrorDetails(error.log_message % error.args if error.args else error.log_message)
    return ErrorDetails(reason)
