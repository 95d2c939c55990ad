"""Beats without Celery: the engine on a real server, with a clock and a broker of the test's own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from inspect import signature
from typing import Any

from redis import Redis

from celery_catchup.config.exclusions import compile_exclusions
from celery_catchup.config.policy import Policy
from celery_catchup.config.settings import Settings
from celery_catchup.engine import Declared, DispatchFailedError, Engine, Reaper, Sent, Services
from celery_catchup.engine.housekeeping import Housekeeping
from celery_catchup.events import Event, Events, RunDispatched, RunSkipped
from celery_catchup.model import Instant, PlannedRun, to_rfc3339
from celery_catchup.planning.entry import Entry, Role, Schedule
from celery_catchup.store import (
    ActiveLimit,
    Actor,
    AuditAction,
    Backfills,
    Change,
    Controls,
    DeadlineRecords,
    Leadership,
    Leases,
    Ledger,
    Origin,
    OutboxRun,
    Recovery,
    Retention,
    States,
    Store,
    Template,
    Workers,
    connect,
)
from celery_catchup.testing import FakeClock
from celery_catchup.timetables.cron_dialects import parse_cron
from celery_catchup.timetables.zones import zone_named

NAMESPACE = "test"
OPEN: list[Redis] = []
"""Clients of beats that a test has made; closed when it ends."""
QUEUE = "celery"


class KeptBackError(DispatchFailedError):
    """As celery-singleton does it."""

    guarded = True


class UnroutableError(DispatchFailedError):
    """Waiting does not help."""

    temporary = False


class Broker:
    """Makes messages that the store pushes to a list of the same server, or publishes by itself."""

    def __init__(self, *, atomic: bool = True) -> None:
        self.atomic = atomic
        self.failing: set[str] = set()
        self.guarded: set[str] = set()
        self.unroutable: set[str] = set()
        self.published: list[str] = []
        self.ended: list[str] = []
        self.terminated: list[str] = []
        self.hooked = False
        """Whether somebody's code sees each message, so that no two runs share one."""
        self.down = False
        self.held: int | None = None
        """How many messages the queue holds, when the broker tells."""
        self.depths: dict[int, int] = {}
        """The same by priority, where the broker keeps them apart."""
        self.timing: dict[str, int] = {}
        """Countdown or expiry of every message."""

    def depth(self, queue: str, routing_key: str, priority: int = 0) -> int | None:
        return self.depths.get(priority, self.held)

    def template(self, entry: str, run: PlannedRun, run_id: str, **options: Any) -> Template:
        if entry in self.guarded:
            raise KeptBackError(entry)
        if entry in self.failing:
            raise DispatchFailedError(f"{entry} cannot be sent")
        message = json.dumps(
            {
                "id": "@catchup:task_id@",
                "entry": entry,
                "slot": "@catchup:scheduled_time@",
                "is_catchup": "@catchup!is_catchup@",
                "trigger": "@catchup:trigger_type@",
                "interval": ["@catchup:interval_start@", "@catchup:interval_end@"],
            }
        )
        made_for = run_id if self.hooked else None
        place: dict[str, Any] = {"queue": QUEUE, "db": 0} if self.atomic else {}
        return Template(message, run=made_for, routing_key=QUEUE, queue_name=QUEUE, **self.timing, **place)

    def publish(
        self, windows: Iterable[Sequence[OutboxRun]], *, now: Instant, enough: Callable[[], bool]
    ) -> Iterator[list[Sent]]:
        for window in windows:
            sent = list[Sent]()
            for one in window:
                sent.append(Sent(one, self.send(one)))
                if enough():
                    break
            yield sent

    def send(self, one: OutboxRun) -> DispatchFailedError | None:
        """Publish one message, or return why not."""
        if self.down:
            return DispatchFailedError("the broker is down")
        if one.run["entry"] in self.unroutable:
            return UnroutableError("no queue takes it")
        self.published.append(to_rfc3339(one.run["slot"]))
        return None

    def end(self, task_ids: list[str], *, terminate: bool) -> bool:
        if self.down:
            return False
        self.ended += task_ids
        self.terminated += task_ids if terminate else []
        return True


def by_tester() -> Change:
    """A change that a test makes, for the audit trail."""
    return Change(actor=Actor("tester", Origin.PYTHON), action=AuditAction.REPAIR)


class ByTester:
    """A part of the store whose changes are a test's, so that calls need not say so."""

    def __init__(self, part: object) -> None:
        vars(self)["part"] = part

    def __getattr__(self, name: str) -> Any:
        found = getattr(vars(self)["part"], name)
        changes = callable(found) and "change" in signature(found).parameters
        return (lambda *args, **given: found(*args, **{"change": by_tester(), **given})) if changes else found

    def __setattr__(self, name: str, value: object) -> None:
        setattr(vars(self)["part"], name, value)


class Beat:
    """One beat process, as far as the engine goes."""

    def __init__(
        self,
        url: str,
        clock: FakeClock,
        entries: Mapping[str, tuple[Any, Mapping[str, Any]]],
        *,
        broker: Broker | None = None,
        **settings: Any,
    ) -> None:
        self.clock, self.broker, self.events = clock, broker or Broker(), list[Event]()
        self.client: Redis = connect(url)
        OPEN.append(self.client)
        self.store = store = Store(self.client, NAMESPACE)
        self.keys = store.keys
        leadership = Leadership(store, clock=clock, ttl_ms=10_000)
        self.ledger = Ledger(store)
        states = States(store)
        events = Events(self.events.append)
        self.recovery = Recovery(store)
        self.leases = Leases(store, ttl_ms=60_000)
        retention = Retention(store)
        self.controls: Any = ByTester(Controls(store))
        self.workers = Workers(store)
        reaper = Reaper(
            self.recovery,
            leadership,
            events,
            presence=self.workers.presence,
            depth=self.broker.depth,
        )
        backfills = Backfills(store)
        self.backfills: Any = ByTester(backfills)
        self.active_limit = ActiveLimit(store)
        services = Services(
            leadership,
            states,
            self.ledger,
            self.broker,
            clock,
            events,
            reaper,
            backfills,
            retention,
            self.active_limit,
            DeadlineRecords(store),
        )
        declared = [_declared(name, crons, raw) for name, (crons, raw) in entries.items()]
        read = Settings.read({f"catchup_{name}": value for name, value in settings.items()})
        self.engine = Engine(
            services, declared, settings=read, namespace=NAMESPACE, records=dict(map(record, declared))
        )

    def housekeeping(self, *, ttl_days: int = 30, most_dead: int = 100) -> Housekeeping:
        """Housekeeping of the same store, with other limits."""
        limits = {"ledger_ttl": timedelta(days=ttl_days), "max_dead_letters": most_dead}
        return Housekeeping(self.engine.services, self.engine.settings.model_copy(update=limits))

    def tick(self) -> bool:
        now = self.engine.now()
        if not self.engine.lead(now):
            return False
        self.engine.advance(now)
        self.engine.release(now)
        return self.engine.leading

    def run_for(self, *, seconds: int, step: int = 1) -> None:
        """Tick as a healthy beat does."""
        for _ in range(0, seconds, step):
            self.clock.advance(seconds=step)
            self.tick()

    def messages(self) -> list[dict[str, Any]]:
        """What a worker would receive, oldest first."""
        found: Any = self.client.lrange(QUEUE, 0, -1)
        return [json.loads(message) for message in reversed(found)]

    def sent(self, entry: str | None = None) -> list[str]:
        """The slots of the messages on the broker."""
        return [m["slot"] for m in self.messages() if entry in (None, m["entry"])]

    def told(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def dispatched(self, entry: str) -> list[str]:
        """The slots that became runs, by this beat."""
        return [to_rfc3339(e.run.slot.at) for e in self.told(RunDispatched) if e.entry == entry]

    def skipped(self, entry: str) -> list[tuple[str, str, int, str]]:
        """The spans that this beat skipped."""
        spans = [e.skip for e in self.told(RunSkipped) if e.entry == entry]
        return [(to_rfc3339(s.first), to_rfc3339(s.last), s.count, str(s.reason)) for s in spans]


def record(one: Declared) -> tuple[str, str]:
    """An entry's name, and how the store remembers its declaration."""
    return one.name, json.dumps({"schedule": one.fingerprint, "task": one.task})


def _declared(name: str, crons: Any, raw: Mapping[str, Any]) -> Declared:
    """An entry of a cron expression, several, or a mapping of roles to expressions."""
    expressions = [crons] if isinstance(crons, str) else list(crons)
    roles = [Role.START] * len(expressions)
    if isinstance(crons, Mapping):
        roles, expressions = [Role(role) for role in crons], list(crons.values())
    policy = Policy.from_raw(raw, where=name)

    def build(anchor: Instant) -> Entry:
        zone = zone_named(policy.timezone or "UTC")
        schedules = [
            Schedule(parse_cron(cron, zone=zone), role=role)
            for cron, role in zip(expressions, roles, strict=True)
        ]
        return Entry(name, tuple(schedules), policy, compile_exclusions(policy.exclude, zone, ()))

    return Declared(name, f"proj.{name}", fingerprint=repr((expressions, roles)), build=build)
