"""Turn the package's errors, and the store's, into one line and an exit code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click
from redis.exceptions import AuthenticationError, RedisClusterException, RedisError, ResponseError
from redis.exceptions import ConnectionError as UnreachableError
from redis.exceptions import TimeoutError as SilentError

from celery_catchup.cli.command import EX_FAILURE, EX_UNAVAILABLE, EX_USAGE
from celery_catchup.cli.screen import CommandError
from celery_catchup.engine import DispatchFailedError
from celery_catchup.errors import CatchupError, ConfigurationError, EntryMissingError
from celery_catchup.operations import UnknownEntryError
from celery_catchup.store.connection import explain
from celery_catchup.store.opening import masked_url


@contextmanager
def readable_errors(ctx: click.Context) -> Iterator[None]:
    """Raise a `CommandError` in place of an expected error."""
    try:
        yield
    except ConfigurationError as error:
        app = ctx.find_root().params.get("app")
        hint = "" if app else "\n  (no app was named: add -A proj after celery)"
        raise CommandError(f"{error}{hint}", code=EX_USAGE, prefix="") from None
    except (UnknownEntryError, EntryMissingError) as error:
        raise CommandError(str(error), code=EX_USAGE) from None
    except DispatchFailedError as error:
        raise CommandError(str(error), code=EX_UNAVAILABLE if error.temporary else EX_FAILURE) from None
    except CatchupError as error:
        raise CommandError(str(error)) from None
    except (RedisError, RedisClusterException) as error:
        problem, code = _store_problem(error)
        text = f"the store at {masked_url(ctx.obj.app)}{problem}: {explain(error)}"
        raise CommandError(text, code=code) from None


def _store_problem(error: Exception) -> tuple[str, int]:
    match error:
        case AuthenticationError():
            return ": authentication failed", EX_USAGE
        case UnreachableError() | SilentError():
            return " is unreachable", EX_UNAVAILABLE
        case ResponseError():
            return " answers with an error", EX_FAILURE
        case _:
            return " cannot be used", EX_UNAVAILABLE
