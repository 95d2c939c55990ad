"""`DispatchError`: why a run did not reach its broker, in plain words."""

from __future__ import annotations

import struct

from amqp.exceptions import FrameSyntaxError  # type: ignore[import-untyped]
from kombu.exceptions import OperationalError
from redis.exceptions import (
    ClusterDownError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
)

from celery_catchup.engine import DispatchFailedError
from celery_catchup.error_text import masked
from celery_catchup.store.connection import explain

# Reply codes of AMQP.
_NO_ROUTE, _NOT_FOUND = 312, 404  # no queue takes a mandatory message; no such exchange
_REFUSALS = (403, 405, 406)  # access refused, resource locked, declared differently before
_TEMPORARY = ("BUSY", "CLUSTERDOWN", "MASTERDOWN", "MISCONF", "NOREPLICAS")
ENCODING_ERRORS = (FrameSyntaxError, struct.error, OverflowError, LookupError, TypeError, ValueError)
"""Exceptions about a message that cannot be encoded."""
_LONGEST = 200  # characters of an exception's text that ours repeats


class DispatchError(DispatchFailedError):
    """A run did not reach its broker; ``code`` is stable.

    ============== ===================================================================
    unreachable    the broker does not answer, or not in time; whether it has the
                   message is then unknown: send it again later
    full           the broker accepts no more messages for now: send it again later
    queue_full     the queue accepts no more messages for now
    unroutable     no queue takes the message
    refused        the broker refuses the queue as it is declared, or the user
    guard_blocked  the task's own guard (celery-singleton, celery-once) dropped it
    not_followed   the task's own ``apply_async`` sent it, but not as one message
    invalid        no message can be made from the entry
    ============== ===================================================================
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code

    @property
    def guarded(self) -> bool:
        """Whether the task's own guard dropped it."""
        return self.code == "guard_blocked"

    @property
    def unfollowed(self) -> bool:
        """Whether it was sent, but not as one message that can be followed."""
        return self.code == "not_followed"

    @property
    def temporary(self) -> bool:
        """Whether waiting helps: the broker failed, not the entry."""
        return self.code in ("unreachable", "full")


def describe(error: BaseException) -> str:
    """Return the text of an exception, on one line, without a password."""
    error = _cause(error)
    if isinstance(error, RedisError):
        # After the colon redis-py shows its client objects.
        return masked(explain(error)).partition(" : <")[0]
    lines = str(error).splitlines()
    return masked(lines[0][:_LONGEST]) if lines else type(error).__name__


def publish_error(error: Exception, *, where: str) -> DispatchError:
    """Explain why a publish to ``where`` failed."""
    if isinstance(error, DispatchError):
        return error
    cause = _cause(error)
    code = getattr(cause, "reply_code", None)
    if code in (_NO_ROUTE, _NOT_FOUND):
        return unroutable(where)
    if type(cause).__name__ == "MessageNacked":
        return queue_full(where)
    if isinstance(cause, OutOfMemoryError):
        return DispatchError("full", f"{where} is full; consume from it or raise its limit")
    if isinstance(cause, ENCODING_ERRORS):
        what = f"{type(cause).__name__}: {describe(cause)}"
        return DispatchError("invalid", f"a message to {where} cannot be encoded: {what}")
    if code in _REFUSALS or _refused_by_redis(cause):
        return DispatchError("refused", f"the broker refuses {where}: {describe(error)}")
    return unreachable(error)


def queue_full(where: str) -> DispatchError:
    """Explain that the broker refused the message for its queue; other queues may take theirs."""
    return DispatchError("queue_full", f"{where} is full; consume from it or raise its limit")


def unroutable(where: str) -> DispatchError:
    """Explain that no queue takes the message; Celery would drop it silently."""
    return DispatchError(
        "unroutable",
        f"a message to {where} is unroutable: no queue takes it; bind one, or correct task_routes",
    )


def unreachable(error: BaseException) -> DispatchError:
    """Explain that the broker, or the way to it, failed."""
    return DispatchError("unreachable", f"broker unreachable: {describe(error)}")


def is_temporary(error: RedisError) -> bool:
    """Tell whether a Redis error is about the state of the server, and not about the command."""
    states = (ClusterDownError, OutOfMemoryError, ReadOnlyError)
    return isinstance(error, states) or str(error).startswith(_TEMPORARY)


def _cause(error: BaseException) -> BaseException:
    """Return the exception that kombu wrapped, if it did."""
    return error.__cause__ if isinstance(error, OperationalError) and error.__cause__ else error


def _refused_by_redis(error: BaseException) -> bool:
    return isinstance(error, NoPermissionError) or (
        isinstance(error, RedisError) and "WRONGTYPE" in str(error)
    )
