"""What can go wrong between a run and its broker, and how a sentence about it is put."""

from __future__ import annotations

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
_REFUSALS = (403, 405, 406)  # access refused, resource locked, declared in another way before
_PASSING = ("BUSY", "CLUSTERDOWN", "MASTERDOWN", "MISCONF", "NOREPLICAS")
_LONGEST = 200  # characters of somebody else's message that ours repeats


class DispatchError(DispatchFailedError):
    """A run did not reach its broker; ``code`` is stable.

    ============== ===================================================================
    unreachable    the broker does not answer, or not in time; whether it has the
                   message is then unknown: send it again later
    full           the broker accepts no more messages for now: send it again later
    unroutable     no queue takes the message
    refused        the broker refuses the queue as it is declared, or the user
    guard_blocked  the task's own guard (celery-singleton, celery-once) kept it back
    not_followed   the task's own ``apply_async`` has sent it, but not as one message
    invalid        the entry cannot be made a message at all
    ============== ===================================================================
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code

    @property
    def guarded(self) -> bool:
        """Whether the task's own guard kept it back."""
        return self.code == "guard_blocked"

    @property
    def unfollowed(self) -> bool:
        """Whether it was sent, but not as one message that can be followed."""
        return self.code == "not_followed"

    @property
    def temporary(self) -> bool:
        """Whether waiting helps: the broker is at fault, and not the entry."""
        return self.code in ("unreachable", "full")


def told(error: BaseException) -> str:
    """What an exception says, on one line, without a password."""
    error = _behind(error)
    if isinstance(error, RedisError):
        # Behind the colon redis-py shows its client objects.
        return masked(explain(error)).partition(" : <")[0]
    lines = str(error).splitlines()
    return masked(lines[0][:_LONGEST]) if lines else type(error).__name__


def publish_error(error: Exception, *, where: str) -> DispatchError:
    """Why a publish to ``where`` failed, in our words."""
    if isinstance(error, DispatchError):
        return error
    behind = _behind(error)
    code = getattr(behind, "reply_code", None)
    if code in (_NO_ROUTE, _NOT_FOUND):
        return unroutable(where)
    if type(behind).__name__ == "MessageNacked" or isinstance(behind, OutOfMemoryError):
        return DispatchError("full", f"{where} is full; consume from it or raise its limit")
    if code in _REFUSALS or _refused_by_redis(behind):
        return DispatchError("refused", f"the broker refuses {where}: {told(error)}")
    return unreachable(error)


def unroutable(where: str) -> DispatchError:
    """No queue takes the message; Celery would drop it without a word."""
    return DispatchError(
        "unroutable", f"a message to {where} is unroutable: no queue takes it; bind one, or mend task_routes"
    )


def unreachable(error: BaseException) -> DispatchError:
    """The broker, or the way to it, is at fault."""
    return DispatchError("unreachable", f"broker unreachable: {told(error)}")


def passes(error: RedisError) -> bool:
    """Whether a server's answer is about its present state, and not about the question."""
    states = (ClusterDownError, OutOfMemoryError, ReadOnlyError)
    return isinstance(error, states) or str(error).startswith(_PASSING)


def _behind(error: BaseException) -> BaseException:
    """What kombu had caught and wrapped, if it did."""
    return error.__cause__ if isinstance(error, OperationalError) and error.__cause__ else error


def _refused_by_redis(error: BaseException) -> bool:
    return isinstance(error, NoPermissionError) or (
        isinstance(error, RedisError) and "WRONGTYPE" in str(error)
    )
