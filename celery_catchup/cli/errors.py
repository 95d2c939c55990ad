"""What goes wrong in a command, as one line and an exit code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click
from redis.exceptions import AuthenticationError, RedisClusterException, RedisError, ResponseError
from redis.exceptions import ConnectionError as UnreachableError
from redis.exceptions import TimeoutError as SilentError

from celery_catchup.cli.command import EX_FAILURE, EX_UNAVAILABLE, EX_USAGE
from celery_catchup.cli.screen import RefusalError
from celery_catchup.engine import DispatchFailedError
from celery_catchup.errors import CatchupError, ConfigurationError
from celery_catchup.operations import UnknownEntryError
from celery_catchup.store.connection import explain
from celery_catchup.store.opening import masked_url


class MistakesError(RefusalError):
    """The configuration's mistakes, as beat shows them."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code=EX_USAGE)

    def show(self, file: object = None) -> None:
        """As they are, one a line."""
        click.echo(self.message, err=True)


@contextmanager
def failures(ctx: click.Context) -> Iterator[None]:
    """Turn our errors, and the store's, into what a command ends with."""
    try:
        yield
    except ConfigurationError as error:
        raise MistakesError(f"{error}{_no_app(ctx)}") from None
    except UnknownEntryError as error:
        raise RefusalError(str(error), code=EX_USAGE) from None
    except DispatchFailedError as error:
        raise RefusalError(str(error), code=EX_UNAVAILABLE if error.temporary else EX_FAILURE) from None
    except CatchupError as error:
        raise RefusalError(str(error)) from None
    except (RedisError, RedisClusterException) as error:
        raise _store_error(error, ctx) from None


def _store_error(error: Exception, ctx: click.Context) -> RefusalError:
    where, reason = masked_url(ctx.obj.app), explain(error)
    if isinstance(error, AuthenticationError):
        return RefusalError(f"the store at {where} refuses us: {reason}", code=EX_USAGE)
    if isinstance(error, UnreachableError | SilentError):
        return RefusalError(f"the store at {where} is unreachable: {reason}", code=EX_UNAVAILABLE)
    if isinstance(error, ResponseError):
        return RefusalError(f"the store at {where} answers: {reason}")
    return RefusalError(f"the store at {where} cannot be used: {reason}", code=EX_UNAVAILABLE)


def _no_app(ctx: click.Context) -> str:
    given = ctx.find_root().params.get("app")
    return "" if given else "\n  (no app was named: celery -A proj catchup …)"
