"""The examination: every check in turn, from the ground up."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

import celery_catchup
from celery_catchup.beat.startup_checks import app_warnings
from celery_catchup.config.app_settings import read_settings
from celery_catchup.config.drift import listed
from celery_catchup.config.settings import OnDrift
from celery_catchup.errors import CatchupError, ConfigurationError, StoreError
from celery_catchup.events.command_lines import command_line
from celery_catchup.operations import Operator
from celery_catchup.operations.doctor import history, memory, processes, repairs, server
from celery_catchup.operations.doctor.findings import Examination, Finding, Verdict, failure, ok, warning
from celery_catchup.operations.drift import show_drift
from celery_catchup.store.connection import STORE_FAILS, explain
from celery_catchup.store.opening import masked_url, open_store

_PACKAGES = ("celery", "kombu", "redis", "flower")

Check = Callable[[Operator], Iterator[Finding]]


def examine(operator: Operator) -> Examination:
    """Make every check that can be made."""
    findings = [*_versions(), *_configuration(operator)]
    sound = not any(one.verdict is Verdict.FAILURE for one in findings)
    findings += _reachable(operator, sound=sound)
    if not any(one.check == "store" and one.verdict is Verdict.FAILURE for one in findings):
        checks: list[Check] = [_schema, server.store, server.clocks, repairs.stored]
        if sound:
            checks += [
                processes.leader,
                processes.namespace,
                processes.broker,
                processes.leases,
                processes.dead_letters,
            ]
            checks += [history.lost_slots, history.windows, memory.memory, _drift]
        for check in checks:
            findings += _made(check, operator)
    findings += _flower()
    healthy = not any(one.verdict in (Verdict.FAILURE, Verdict.UNKNOWN) for one in findings)
    return Examination(healthy, tuple(findings))


def _made(check: Check, operator: Operator) -> list[Finding]:
    """A check, whatever happens in it."""
    try:
        return list(check(operator))
    except STORE_FAILS as error:
        return [Finding(_name(check), Verdict.UNKNOWN, explain(error))]
    except CatchupError as error:
        return [Finding(_name(check), Verdict.UNKNOWN, str(error))]


def _name(check: Check) -> str:
    return check.__name__.strip("_").replace("_", " ")


def _versions() -> Iterator[Finding]:
    found = [f"celery_catchup {celery_catchup.__version__}", f"Python {platform.python_version()}"]
    for package in _PACKAGES:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    yield ok("versions", ", ".join(found))


def _configuration(operator: Operator) -> Iterator[Finding]:
    try:
        resolved = operator.resolved
    except ConfigurationError as error:
        for mistake in error.mistakes:
            yield failure("configuration", str(mistake), "mend it: beat does not start with a mistake")
        return
    entries = f"{len(resolved.declared)} with a policy, {len(resolved.unmanaged)} without"
    yield ok("configuration", f"no mistakes; entries: {entries}")
    for text in resolved.not_replayable:
        yield warning("configuration", text, "use a schedule that can be replayed, or leave the policy out")
    for text in (*resolved.warnings, *_of_the_app(operator)):
        yield warning("configuration", text, "change it, unless it is meant so")
    if operator.app.conf.task_always_eager and resolved.declared:
        yield failure("configuration", "task_always_eager is on: tasks would run inside beat", "turn it off")


def _of_the_app(operator: Operator) -> Iterator[str]:
    return app_warnings(operator.app, operator.schedule, operator.configuration, now=operator.now())


def _reachable(operator: Operator, *, sound: bool) -> Iterator[Finding]:
    try:
        if not sound:
            # The mistakes may be elsewhere; where the store is can still be read.
            operator.store = open_store(
                operator.app, read_settings(operator.app, only=("redis_url", "namespace"))
            )
        operator.store.client.ping()
    except STORE_FAILS as error:
        yield failure(
            "store", f"{masked_url(operator.app)}: {explain(error)}", "mend catchup_redis_url, or the server"
        )
    except (ConfigurationError, StoreError) as error:
        yield failure("store", str(error).splitlines()[-1].strip(), "set catchup_redis_url")
    else:
        yield ok("store", f"{masked_url(operator.app)} answers; namespace {operator.store.namespace}")


def _schema(operator: Operator) -> Iterator[Finding]:
    try:
        operator.read_for_change()
    except StoreError as error:
        yield failure(
            "schema", str(error), "upgrade celery_catchup here; what is stored can only be looked at"
        )


def _drift(operator: Operator) -> Iterator[Finding]:
    """Whether a beat with these entries would start."""
    found = show_drift(operator)
    if found.differences and found.on_drift == OnDrift.REFUSE:
        told = f"the declared entries differ from the stored ones: {listed(list(found.differences))}"
        yield failure("drift", told, f"declare them as they were, or: {command_line('drift', 'accept')}")


def _flower() -> Iterator[Finding]:
    if find_spec("flower") is None:
        yield ok("flower", "Flower is not installed here")
    elif find_spec("celery_catchup.flower") is None:
        yield ok("flower", "Flower is installed; this version has no tab for it")
    else:
        yield ok("flower", "Flower is installed; start it with the tab: celery -A … catchup flower")
