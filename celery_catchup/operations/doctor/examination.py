"""Run every check of the doctor, those that others depend on first."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import dataclass
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
from celery_catchup.operations.doctor.findings import (
    Examination,
    Finding,
    Results,
    Verdict,
    failure,
    ok,
    warning,
)
from celery_catchup.operations.drift import show_drift
from celery_catchup.store.connection import STORE_FAILS, explain
from celery_catchup.store.opening import masked_url, open_store

_PACKAGES = ("celery", "kombu", "redis", "flower")


@dataclass(frozen=True, slots=True)
class _Check:
    """One check. ``all_well`` is reported when it finds nothing."""

    name: str
    run: Callable[[Operator], Results]
    all_well: str | None = None

    def findings(self, operator: Operator) -> list[Finding]:
        try:
            found = [Finding(self.name, *one) for one in self.run(operator)]
        except STORE_FAILS as error:
            return [Finding(self.name, Verdict.UNKNOWN, explain(error))]
        except CatchupError as error:
            return [Finding(self.name, Verdict.UNKNOWN, str(error))]
        if not found and self.all_well is not None:
            return [Finding(self.name, Verdict.OK, self.all_well)]
        return found


def examine(operator: Operator) -> Examination:
    """Run every check that can be run: some need a server that answers, some a valid configuration."""
    findings = [one for check in _ALWAYS for one in check.findings(operator)]
    failed = {one.check for one in findings if one.verdict is Verdict.FAILURE}
    for check in (*_OF_THE_STORE, *(() if "configuration" in failed else _OF_THE_APP)):
        findings += [] if "store" in failed else check.findings(operator)
    findings += _FLOWER.findings(operator)
    healthy = not any(one.verdict in (Verdict.FAILURE, Verdict.UNKNOWN) for one in findings)
    return Examination(healthy, tuple(findings))


def _versions(operator: Operator) -> Results:
    found = [f"celery_catchup {celery_catchup.__version__}", f"Python {platform.python_version()}"]
    for package in _PACKAGES:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    yield ok(", ".join(found))


def _configuration(operator: Operator) -> Results:
    try:
        resolved = operator.declared_resolved
    except ConfigurationError as error:
        for mistake in error.mistakes:
            yield failure(str(mistake), "correct it: beat does not start with a mistake")
        return
    yield ok(
        f"no mistakes; entries: {len(resolved.declared)} with a policy, {len(resolved.unmanaged)} without"
    )
    for text in resolved.not_replayable:
        yield warning(text, "use a schedule that can be replayed, or remove the policy")
    of_the_app = app_warnings(
        operator.app, operator.declared_schedule, operator.declared_configuration, now=operator.now()
    )
    for text in (*resolved.warnings, *of_the_app):
        yield warning(text, "change it, unless you intend it")
    if operator.app.conf.task_always_eager and resolved.declared:
        yield failure("task_always_eager is on: tasks would run inside beat", "turn it off")


def _store(operator: Operator) -> Results:
    try:
        try:
            store = operator.store
        except ConfigurationError:  # where the store is can still be read, unless the mistake is there
            store = operator.store = open_store(
                operator.app, read_settings(operator.app, only=("redis_url", "namespace"))
            )
        store.client.ping()
    except STORE_FAILS as error:
        detail = f"{masked_url(operator.app)}: {explain(error)}"
        yield failure(detail, "correct catchup_redis_url, or repair the server")
    except (ConfigurationError, StoreError) as error:
        yield failure(str(error).splitlines()[-1].strip(), "set catchup_redis_url")
    else:
        yield ok(f"{masked_url(operator.app)} answers; namespace {store.namespace}")


def _schema(operator: Operator) -> Results:
    try:
        operator.read_for_change()
    except StoreError as error:
        yield failure(str(error), "upgrade celery_catchup here; this version can only read the stored state")


def _drift(operator: Operator) -> Results:
    """Check whether a beat with these entries would start."""
    found = show_drift(operator)
    if found.differences and found.on_drift == OnDrift.REFUSE:
        detail = f"the declared entries differ from the stored ones: {listed(list(found.differences))}"
        yield failure(detail, f"declare them as they were, or: {command_line('drift', 'accept')}")


def _flower(operator: Operator) -> Results:
    if find_spec("flower") is not None:
        yield ok(f"Flower is installed; start it with the tab: {command_line('flower')}")


_ALWAYS = (
    _Check("versions", _versions),
    _Check("configuration", _configuration),
    _Check("store", _store),
)
_OF_THE_STORE = (
    _Check("schema", _schema),
    _Check("server", server.server_version),
    _Check("persistence", server.persistence),
    _Check("eviction", server.eviction, "the server evicts nothing"),
    _Check("clocks", server.clocks, "this host and the server agree to the second"),
    _Check("stored state", repairs.stored_state),
)
_OF_THE_APP = (
    _Check("scheduler", processes.scheduler),
    _Check("held catch-ups", processes.held, "none waits for an approval"),
    _Check("namespace", processes.namespace),
    _Check("dispatch", processes.dispatch),
    _Check("workers", processes.workers),
    _Check("runs", processes.runs, "none waits or runs far longer than usual"),
    _Check("leases", processes.leases, "every run in flight has a valid lease"),
    _Check("dead letters", processes.dead_letters, "none"),
    _Check("lost slots", history.lost_slots, "no entry with catch-up off has lost a slot in the last week"),
    _Check("windows", history.windows, "no outage has been longer than the windows"),
    _Check("memory", memory.memory),
    _Check("drift", _drift),
)
_FLOWER = _Check("flower", _flower, "Flower is not installed here")
