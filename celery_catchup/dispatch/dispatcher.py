"""The dispatcher: find out how messages reach the broker, make their templates, publish the outbox."""

from __future__ import annotations

import copy
import logging
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from importlib.resources import files
from typing import Any

import kombu
from celery.beat import ScheduleEntry
from celery.result import EagerResult
from kombu.exceptions import OperationalError
from kombu.utils import json as kombu_json
from redis import Redis
from redis.exceptions import RedisError, ResponseError

from celery_catchup.config.policy import LOWEST
from celery_catchup.config.settings import Checkins, MarkTasks
from celery_catchup.dispatch.broker import Broker, destination
from celery_catchup.dispatch.capture import Capture, can_capture, capture, key_prefix
from celery_catchup.dispatch.captured_message import CapturedMessage
from celery_catchup.dispatch.celery_internals import counted_publications
from celery_catchup.dispatch.dispatch_error import (
    ENCODING_ERRORS,
    DispatchError,
    describe,
    is_temporary,
    publish_error,
    unreachable,
    unroutable,
)
from celery_catchup.dispatch.header_names import CLAIM_HEADERS, SLOTS
from celery_catchup.dispatch.placeholders import value_placeholder
from celery_catchup.dispatch.prepared_message import OutgoingMessage
from celery_catchup.dispatch.publishing import WindowPublisher
from celery_catchup.dispatch.sent_events import SentEvents
from celery_catchup.dispatch.sentry_checkins import SentryCheckins
from celery_catchup.dispatch.task_call import TaskCall
from celery_catchup.dispatch.templates import Templates
from celery_catchup.engine import Sent
from celery_catchup.error_text import shown
from celery_catchup.events.log_lines import logfmt
from celery_catchup.model import Instant, PlannedRun, Trigger
from celery_catchup.store import OutboxRun, Template
from celery_catchup.store.templates import is_catchup, render

logger = logging.getLogger(__name__)

_loads: Any = kombu_json.loads  # kombu's functions carry no types
_MAY_PUSH = (files("celery_catchup.dispatch") / "may_push.lua").read_text(encoding="utf-8")
# Exceptions of celery-once and celery-singleton: the task is queued already.
_GUARDS = {"AlreadyQueued", "DuplicateTaskError"}


class Mode(StrEnum):
    """How messages reach the broker."""

    ATOMIC = "atomic"
    OUTBOX = "outbox"


class Dispatcher:
    """Make the messages of an app's entries, and publish those of the outbox.

    Connects to broker and state in `probe`, or in the first call that needs them. Not thread-safe.
    """

    def __init__(
        self,
        app: Any,
        *,
        state: Redis,
        state_db: int,
        mark_tasks: MarkTasks = MarkTasks.BOTH,
        checkins: Checkins | None = None,
    ) -> None:
        self._app, self._state, self._state_db, self._mark_tasks = app, state, state_db, mark_tasks
        self._broker = Broker(app)
        self.sent_events = SentEvents(app, self._broker)
        self._db = 0
        self._templates = Templates(app)
        self._checkins = SentryCheckins(app, checkins)
        self._queues: dict[str, str] = {}
        self._logged: set[str] = set()
        self.mode: Mode | None = None
        self.reason = "the broker was not examined yet"

    @property
    def speaks_redis(self) -> bool:
        """Whether the broker is a Redis server; sends nothing."""
        return self._broker.speaks_redis

    @property
    def lowest_priority(self) -> int:
        """The priority that the broker serves last: kombu's Redis transport serves 0 first, others last."""
        return 9 if self.speaks_redis else 0

    # -- mode --------------------------------------------------------------------------------

    def probe(self) -> None:
        """Find out how messages reach the broker, and set ``mode`` and ``reason``.

        Raises `DispatchError`, or redis-py's errors about the state: wait and call again.
        """
        self.mode = None
        self._templates.clear()
        self._queues.clear()
        obstacle = self._obstacle()
        if obstacle is None:
            self.mode = Mode.ATOMIC
            self.reason = (
                f"broker (database {self._db}) and state (database {self._state_db}) share a Redis server: "
                "a message is sent in the step that records its run"
            )
        else:
            self.mode = Mode.OUTBOX
            self.reason = f"{obstacle}; runs are published from the outbox"

    def _obstacle(self) -> str | None:
        """Explain why messages cannot be pushed in one step with the state; None when they can."""
        if not self._broker.speaks_redis:
            return f"the broker speaks {self._broker.driver}, not Redis"
        connection = self._broker.connected()
        try:
            with connection.default_channel.conn_or_acquire() as client:
                self._db = int(client.connection_pool.connection_kwargs.get("db") or 0)
                theirs = client.info("server")
        except (RedisError, OSError) as error:
            if isinstance(error, ResponseError) and not is_temporary(error):
                return f"the broker does not say which server it is ({describe(error)})"
            self._broker.drop()
            raise unreachable(error) from error
        return self._other_server(theirs) or self._other_kombu(connection)

    def _other_server(self, theirs: Mapping[str, Any]) -> str | None:
        try:
            ours: Any = self._state.info("server")
        except ResponseError as error:
            if is_temporary(error):
                raise
            return f"the state does not say which server it is in ({describe(error)})"
        if not ours.get("run_id") or ours.get("run_id") != theirs.get("run_id"):
            return "broker and state are on different Redis servers"
        if ours.get("redis_mode") == "cluster":
            return "the server is part of a Redis Cluster, where a script cannot reach a queue"
        return None

    def _other_kombu(self, connection: Any) -> str | None:
        if not can_capture(connection):
            return f"kombu {kombu.__version__} pushes messages in a way that is not known here"
        queue = f"{key_prefix(connection.default_channel)}{self._app.conf.task_default_queue}"
        obstacle = self._why_not_pushed(queue)
        return f"queue {shown(queue)} cannot be pushed to from a script: {obstacle}" if obstacle else None

    def _why_not_pushed(self, queue: str) -> str:
        if queue not in self._queues:
            try:
                answer: Any = self._state.eval(_MAY_PUSH, 0, queue, str(self._db))
                self._queues[queue] = answer.decode() if isinstance(answer, bytes) else str(answer)
            except ResponseError as error:
                if is_temporary(error):
                    raise
                self._queues[queue] = describe(error)
        return self._queues[queue]

    # -- templates ---------------------------------------------------------------------------

    def template(
        self,
        entry: ScheduleEntry,
        *,
        policy_entry: str | None,
        run_id: str | None = None,
        run: Mapping[str, Any] | None = None,
    ) -> Template:
        """Return the message of an entry, with placeholders where two runs differ.

        ``policy_entry`` is the name under which the ledger knows it, None for an entry without a
        policy. ``run`` (its ``slot``, ``trigger`` and ``previous``) is what the message is for. Most
        entries have one template for all runs; where the user's code sees every message (see
        `can_share_template`), each run gets its own.
        """
        badge = self._mark_tasks if run is not None and is_catchup(run) else MarkTasks.NONE
        shared = self._shared(entry, policy_entry, run, badge)
        if shared is not None:
            return shared
        call = self._call(entry, policy_entry=policy_entry, run_id=run_id, run=run)
        template = self._captured(call).template(badge)
        return template if run_id is None else template.for_run(run_id)

    def _shared(
        self, entry: ScheduleEntry, policy_entry: str | None, run: Mapping[str, Any] | None, badge: MarkTasks
    ) -> Template | None:
        """Return the template of all runs of the entry; None when each run needs its own."""

        def make() -> Template:
            call = TaskCall.of(self._app, entry, policy_entry=policy_entry)
            return self._captured(call).template(badge)

        if self.mode is None:
            self.probe()
        if self._checkins.wanted(run):
            return None
        return self._templates.shared(entry, named=policy_entry is not None, badge=badge, make=make)

    def announced(self, trigger: Trigger) -> bool:
        """Tell whether such a run is announced by Celery's own ``apply_entry``, which also logs it."""
        return self._checkins.wanted({"trigger": trigger})

    def _call(
        self,
        entry: ScheduleEntry,
        *,
        policy_entry: str | None,
        run_id: str | None,
        run: Mapping[str, Any] | None,
    ) -> TaskCall:
        """Make the call for one run alone."""
        self._checkins.begin_trace()
        if run is not None and self._checkins.wanted(run):
            entry = self._checkins.opened(entry, run)
        return TaskCall.of(self._app, entry, policy_entry=policy_entry, run_id=run_id, run=run)

    def _captured(self, call: TaskCall) -> CapturedMessage:
        """Let Celery build the one message of a call."""
        seen = self._capture(call)
        if len(seen.publications) != 1:
            raise self._unfollowed(call, seen)
        publication = seen.publications[0]
        # A task that sets an id of its own gets the run's: the ledger follows the run by it.
        call = replace(call, task_id=_published_id(publication) or call.task_id)
        routing_key, queue_name = destination(_loads(publication))
        if self.mode is Mode.ATOMIC:
            if not seen.deliveries:
                raise unroutable(f"entry {shown(call.entry.name)}'s queue")
            if self._can_push(seen, call.entry.name):
                queue, text = seen.pushes[0]
                return CapturedMessage(call, text, queue, self._db, routing_key, queue_name)
        return CapturedMessage(call, publication, routing_key=routing_key, queue_name=queue_name)

    def _unfollowed(self, call: TaskCall, seen: Capture) -> DispatchError:
        """Send what the task's own ``apply_async`` made of a run, without the headers by which a worker would
        claim the run; return the error to raise. Without publications it has sent by itself."""
        for text in seen.publications:
            publication = _loads(text)
            headers = {k: v for k, v in publication["headers"].items() if k not in CLAIM_HEADERS}
            if headers.get("ignore_result") is True:
                headers["ignore_result"] = call.ignore_result
            self._publish({**publication, "headers": headers})
        return DispatchError(
            "not_followed",
            f"task {shown(call.entry.task)} of entry {shown(call.entry.name)} was sent by its own "
            "apply_async, not as one message with its options, so that its run cannot be followed",
        )

    def _can_push(self, seen: Capture, name: str) -> bool:
        obstacle = "it is not one push to one list"
        if seen.one_push_each:
            obstacle = self._why_not_pushed(seen.pushes[0][0])
        if obstacle and name not in self._logged:
            self._logged.add(name)
            logger.info(logfmt("Entry is published from the outbox", entry=name, detail=obstacle))
        return not obstacle

    def _capture(self, call: TaskCall) -> Capture:
        """Let Celery send to a recording producer; every failure is raised as a `DispatchError`."""
        atomic = self.mode is Mode.ATOMIC
        connection = self._broker.connected() if atomic else self._broker.connection
        try:
            with counted_publications() as published:
                seen, result = capture(connection, call.send, down_to_redis=atomic)
        except (OperationalError, RedisError, OSError) as error:
            self._broker.drop()
            raise publish_error(error, where=f"entry {shown(call.entry.name)}'s queue") from error
        except Exception as error:
            raise _entry_error(call.entry, error) from error
        if not seen.publications and not published and not isinstance(result, EagerResult):
            raise _guarded(call.entry)
        return seen

    # -- sending -----------------------------------------------------------------------------

    def publish(
        self,
        windows: Iterable[Sequence[OutboxRun]],
        *,
        now: Instant,
        enough: Callable[[], bool] = lambda: False,
    ) -> Iterator[list[Sent]]:
        """Publish runs of the outbox from their stored templates; yield, for each window, which of its runs
        the broker has, and why it does not have the others, or may not have them (see `Dispatch`)."""

        damaged: deque[list[Sent]] = deque()

        def messages() -> Iterator[list[OutgoingMessage]]:
            for window in windows:
                damaged.append([])
                yield list(_messages(window, now, damaged[-1]))

        for window in WindowPublisher(self._broker, enough).publish(messages()):
            if self.sent_events.wanted:
                self.sent_events.published([one.publication for one in window if one.error is None])
            yield [*(Sent(one.run, one.error) for one in window), *damaged.popleft()]

    def _publish(self, publication: Mapping[str, Any]) -> None:
        self._broker.publish(publication)
        self.sent_events.published([publication])

    def depth(self, queue: str, routing_key: str, priority: int = 0) -> int | None:
        """Count the messages of a queue, unacknowledged ones too; None when the broker does not say. With a
        priority, count those of that priority if the broker keeps them apart."""
        return self._broker.depth(queue, routing_key, priority) if queue else None

    def unmanaged_messages(
        self, entry: ScheduleEntry, *, slot: Instant, now: Instant
    ) -> tuple[str, int, list[str]]:
        """Return queue, database and messages to push for a run of an entry without a policy; no message
        when it could not be pushed and was published."""
        run_id = str(uuid.uuid4())
        run = {"slot": slot, "trigger": Trigger.SCHEDULER, "attempt": 1, "sends": 1}
        template = self._shared(entry, None, run, MarkTasks.NONE)
        if template is None:
            return self._as_sent(entry, run_id, run, now)
        if template.queue is not None and template.db is not None:
            return template.queue, template.db, [render(vars(template), run_id, run, now)]
        self._publish(_loads(render(vars(template), run_id, run, now)))
        return "", 0, []

    def _as_sent(
        self, entry: ScheduleEntry, run_id: str, run: Mapping[str, Any], now: Instant
    ) -> tuple[str, int, list[str]]:
        """Send what Celery, or the task's own ``apply_async``, makes of this run: any number of messages."""
        call = self._call(entry, policy_entry=None, run_id=run_id, run=run)
        seen = self._capture(call)
        if self.mode is Mode.ATOMIC and seen.publications and not seen.deliveries:
            raise unroutable(f"entry {shown(entry.name)}'s queue")
        if self.mode is Mode.ATOMIC and seen.publications and self._can_push(seen, str(entry.name)):
            texts = [text for _, text in seen.pushes]
            return seen.pushes[0][0], self._db, [_filled(call, text, run, now) for text in texts]
        for text in seen.publications:
            self._publish(_loads(_filled(call, text, run, now)))
        return "", 0, []

    def producer(self) -> Any:
        """Make a producer for code of the user's that sends by itself; raises `DispatchError`."""
        return self._broker.producer()

    def close(self, *, interrupted: bool = False) -> None:
        """Close the connection to the broker; a later call connects again.

        A call that was ``interrupted`` may have read half of an answer: then the connection is dropped
        without waiting for the broker.
        """
        self._templates.clear()
        if interrupted:
            self._broker.drop()
        else:
            self._broker.close()


class EntryDispatch:
    """Implements the engine's `Dispatch` for entries of the beat schedule, by their names."""

    def __init__(self, app: Any, sender: Dispatcher, schedule: Mapping[str, ScheduleEntry]) -> None:
        self._app, self._sender, self._schedule = app, sender, schedule
        self.publish, self.depth = sender.publish, sender.depth

    def template(
        self, entry: str, run: PlannedRun, run_id: str, *, options: Mapping[str, Any], spans: bool
    ) -> Template:
        """Build the message of a run."""
        facts = {"slot": run.slot.at, "trigger": str(run.trigger)}
        declared = self._schedule[entry]
        if spans and run.trigger.takes_lane:
            headers = declared.options.get("headers") or {}
            options = {**options, "headers": {**headers, SLOTS: value_placeholder("slots")}}
        if options.get("priority") == LOWEST:
            options = {**options, "priority": self._sender.lowest_priority}
        if options:
            declared = copy.copy(declared)
            declared.options = {**_unrouted(declared.options, options), **options}
        return self._sender.template(declared, policy_entry=entry, run_id=run_id, run=facts)

    def end(self, task_ids: list[str], *, terminate: bool) -> bool:
        """Revoke these tasks; False when the broker fails and the call has to be repeated."""
        try:
            self._app.control.revoke(task_ids, terminate=terminate)
        except (OperationalError, OSError) as error:
            logger.warning(logfmt("Active runs could not be ended", runs=len(task_ids), error=str(error)))
            return False
        return True


def _messages(window: Sequence[OutboxRun], now: Instant, damaged: list[Sent]) -> Iterator[OutgoingMessage]:
    """Fill in the templates of runs; those that cannot be filled in are added to ``damaged``."""
    for one in window:
        try:
            yield OutgoingMessage.of(one, now)
        except ENCODING_ERRORS as error:
            what = f"{type(error).__name__}: {describe(error)}"
            text = f"the stored message of run {one.id} is damaged: {what}"
            damaged.append(Sent(one, DispatchError("invalid", text)))


def _unrouted(options: Mapping[str, Any], lane: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of an entry without its own route, when the lane has a queue."""
    route = ("queue", "exchange", "routing_key") if "queue" in lane else ()
    return {name: value for name, value in options.items() if name not in route}


def _filled(call: TaskCall, text: str, run: Mapping[str, Any], now: Instant) -> str:
    """Render a message of a run without a policy. Protocol 1 keeps the task's id inside the body: such a
    message stays as Celery built it."""
    own_id = _published_id(text)
    if own_id is None:
        return text
    template = CapturedMessage(replace(call, task_id=own_id), text).template(MarkTasks.NONE)
    # The delivery tag is new each time, and a task's own id need not be.
    return render(vars(template), own_id, {**run, "sends": uuid.uuid4()}, now)


def _published_id(text: str) -> str | None:
    found = _loads(text)["headers"].get("id")
    return found if isinstance(found, str) and found else None


def _entry_error(entry: ScheduleEntry, error: Exception) -> DispatchError:
    if isinstance(error, DispatchError):
        return error
    if type(error).__name__ in _GUARDS:
        return _guarded(entry)
    what = f"{type(error).__name__}: {describe(error)}"
    return DispatchError("invalid", f"entry {shown(entry.name)} cannot be made a message: {what}")


def _guarded(entry: ScheduleEntry) -> DispatchError:
    return DispatchError(
        "guard_blocked",
        f"task {shown(entry.task)} of entry {shown(entry.name)} was dropped by its own guard, "
        "as queued or running already",
    )
