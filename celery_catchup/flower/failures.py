"""What goes wrong in a request, as a status and a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tornado.web import HTTPError

from celery_catchup.engine import DispatchFailedError
from celery_catchup.errors import BackfillError, CatchupError, ConfigurationError, Mistake, StoreError
from celery_catchup.operations import RefusedError, UnknownEntryError, UnknownRunError
from celery_catchup.operations.refusals import NoPolicyError


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake: where it is, and what to do."""

    where: str
    problem: str


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a request failed; ``mistakes`` lists all of them where there may be several."""

    message: str
    mistakes: tuple[Problem, ...] = ()


class FailedError(HTTPError):
    """A request that fails with a status and a sentence."""

    def __init__(self, status: int, message: str, mistakes: Sequence[Mistake] = ()) -> None:
        super().__init__(status, "%s", message)
        self.failure = Failure(message, tuple(Problem(one.where, one.problem) for one in mistakes))


def failed(error: CatchupError) -> FailedError:
    """One of our errors, as an answer."""
    if isinstance(error, ConfigurationError):
        return FailedError(
            500, "The configuration has mistakes; mend them and start Flower again.", error.mistakes
        )
    return FailedError(_status(error), str(error))


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
