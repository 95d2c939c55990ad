"""Forget an entry, or everything in a namespace."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from celery_catchup.error_text import shown
from celery_catchup.events.command_lines import command_line
from celery_catchup.events.log_lines import logfmt
from celery_catchup.model import RunState
from celery_catchup.operations.operator import Operator
from celery_catchup.operations.refusals import RefusedError
from celery_catchup.store import AuditAction
from celery_catchup.store.listing import RunFilter

logger = logging.getLogger(__name__)

_NAMED = 5


@dataclass(frozen=True, slots=True)
class ForgottenEntry:
    """An entry whose watermark, pause, counts, skips and ``runs`` were, or would be, forgotten. One that is
    ``declared`` starts as if it had never been seen."""

    entry: str
    runs: int
    declared: bool


@dataclass(frozen=True, slots=True)
class PurgedNamespace:
    """A namespace whose ``keys`` were, or would be, deleted."""

    namespace: str
    keys: int
    entries: int
    runs: int
    dead_letters: int


def forget_entry(operator: Operator, name: str, *, dry_run: bool = False) -> ForgottenEntry:
    """Forget everything that is stored of an entry; refuse while runs of it have not ended."""
    operator.read_for_change([name])
    (name,) = operator.known([name])
    runs = operator.listing.count_runs(name)
    found = ForgottenEntry(name, runs, declared=name in operator.schedule)
    busy = operator.states.open_runs([name])[name]
    if busy.active or busy.waiting:
        raise RefusedError(_still_open(operator, name, busy.active + busy.waiting))
    if not dry_run:
        change = operator.change(AuditAction.FORGET, [name], runs=runs)
        if not operator.controls.drop_entry(name, change=change):
            raise RefusedError(_still_open(operator, name, 1))
        logger.info(logfmt("Entry forgotten", entry=name, runs=runs, by=operator.by))
    return found


def purge(operator: Operator, *, dry_run: bool = False) -> PurgedNamespace:
    """Delete every key of the namespace except its audit trail; refuse while a beat leads, because it would
    write again."""
    leader, _ = operator.listing.leader()
    counts = operator.listing.counts()
    namespace = operator.store.namespace
    if leader and not dry_run:
        beat = leader.get("owner", "")
        raise RefusedError(f"a beat leads in namespace {shown(namespace)} ({beat}); stop all beats first")
    found = PurgedNamespace(
        namespace=namespace,
        keys=operator.controls.count_keys(),
        entries=len(operator.read_stored().first_seen),
        runs=counts["runs"],
        dead_letters=counts["dead"],
    )
    if not dry_run:
        operator.controls.drop_everything(
            change=operator.change(AuditAction.PURGE, targets=[namespace], keys=found.keys)
        )
        logger.warning(logfmt("Namespace purged", namespace=namespace, keys=found.keys, by=operator.by))
    return found


def _still_open(operator: Operator, name: str, count: int) -> str:
    states = frozenset(state for state in RunState if state.in_flight)
    wanted = RunFilter(entries=(name,), states=states, limit=_NAMED)
    ids = [one["id"] for one in operator.listing.runs(wanted, lanes=[name]).records]
    command = command_line("runs", "cancel", *ids, "--terminate")
    return f"runs of entry {shown(name)} that have not ended: {count}; wait for them, or: {command}"
