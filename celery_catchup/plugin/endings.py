"""Endings: whoever learns how an execution ended reports it, and it is recorded once."""

# -- signals: how runs end -------------------------------------------------------------------


def _listen() -> None:
    """Connect the receivers; connecting them again changes nothing."""
    for signal, receiver in _RECEIVERS.items():
        signal.connect(receiver, weak=False, dispatch_uid=f"celery_catchup.{receiver.__name__}")


def _on_received(request: Any = None, **_: Any) -> None:
    """In the main process, for every message: give those of runs a token."""
    arrivals.arrived(request)


def _on_postrun(task: Any = None, state: str | None = None, retval: object = None, **_: Any) -> None:
    """Where the task was executed, whatever became of it."""
    claims.end(task, state=state, outcome=retval)


def _on_failure(sender: Any = None, task_id: str = "", exception: object = None, **_: Any) -> None:
    """In the main process: a child was killed, or overran its time limit. Elsewhere postrun comes, too."""
    for request, delivery in arrivals.started(task_id):
        if not station(sender.app).heartbeat.holds(delivery.token):
            arrivals.ended(request)
            _report(sender.app, delivery, RunState.FAILED, error=in_a_line(exception))


def _on_retry(sender: Any = None, request: Any = None, reason: object = None, **_: Any) -> None:
    """In the main process: a lost or cancelled execution comes again. Elsewhere postrun comes, too."""
    delivery = _delivery(request)
    if delivery is not None and delivery.token:
        post = station(sender.app)
        if not post.heartbeat.holds(delivery.token):
            delay_ms = claims.delay_of(reason, now=post.clock.now())
            _report(sender.app, delivery, None, error=in_a_line(reason), delay_ms=delay_ms)


def _on_revoked(
    sender: Any = None, request: Any = None, *, terminated: Any = None, expired: Any = None, **_: Any
) -> None:
    """In the main process: a message was revoked or expired before, or terminated while, it was executed."""
    delivery = _delivery(request)
    if delivery is not None:
        owner = delivery.token if terminated else NOBODY
        error = "expired" if expired else "terminated" if terminated else "revoked"
        _report(sender.app, delivery, RunState.REVOKED, owner=owner, error=error, even_unclaimed=True)


def _on_rejected(sender: Any = None, message: Any = None, exc: object = None, **_: Any) -> None:
    """In the main process: a message that is no task's; it would not be one the next time either."""
    headers = message.headers if isinstance(message.headers, dict) else {}
    delivery = read_delivery(headers.get(RUN_ID), headers.get(ENTRY), {})
    if delivery is not None:
        error = in_a_line(exc) or "the message was rejected"
        _report(sender.app, delivery, RunState.FAILED, owner=NOBODY, error=error)


def _on_process_shutdown(**_: Any) -> None:
    """A child ends: the last moment for reports that wait."""
    flush()


def _delivery(request: Any) -> Delivery | None:
    return None if header(request, RUN_ID) is None else delivery_of(request)


def _report(app: Any, delivery: Delivery, state: RunState | None, *, owner: str | None = None, **details: Any) -> None:
    owner = delivery.token if owner is None else owner
    report = Report(run_id=delivery.run_id, entry=delivery.entry, owner=owner, state=state, **details)
    station(app).heartbeat.report(report)


_RECEIVERS: dict[Any, Callable[..., None]] = {
    signals.task_received: _on_received,
    signals.task_postrun: _on_postrun,
    signals.task_failure: _on_failure,
    signals.task_retry: _on_retry,
    signals.task_revoked: _on_revoked,
    signals.task_rejected: _on_rejected,
    signals.worker_process_shutdown: _on_process_shutdown,
}




# -- the end ---------------------------------------------------------------------------------


def end(task: Any, *, state: str | None, outcome: object) -> None:
    """Report what became of the run, when this process executed one."""
    token = (task.request.properties or {}).get(TOKEN)
    if token is None:
        return
    post = station(task.app)
    execution = post.heartbeat.drop(token)
    if execution is None:
        return
    leave_run()
    _restore_environment(execution.shadowed)
    report = _report(task, execution, state, outcome, now=post.clock.now())
    if report is not None:
        post.heartbeat.report(report)


def _report(
    task: Any, execution: Execution, state: str | None, outcome: object, *, now: datetime
) -> Report | None:
    """The report of an execution; None when it was cut off and nobody knows how it ended."""
    delay_ms = 0
    match state:
        case states.SUCCESS | states.IGNORED:  # a task that wants to be ignored has done what it wanted
            final = RunState.SUCCEEDED
        case states.RETRY:
            final, delay_ms = None, delay_of(outcome, now=now)
        case states.REJECTED if getattr(outcome, "requeue", False) and task.acks_late:
            final = None
        case states.FAILURE | states.REJECTED:
            final = RunState.FAILED
        case states.REVOKED:
            final = RunState.REVOKED
        case _:
            return None
    run = execution.run
    return Report(
        run_id=run.run_id,
        entry=run.entry,
        owner=execution.owner,
        state=final,
        error=in_a_line(outcome),
        delay_ms=delay_ms,
    )


def delay_of(retry: object, *, now: datetime) -> int:
    """Milliseconds until a retry is delivered."""
    when = getattr(retry, "when", None)
    if isinstance(when, datetime):
        seconds = ((when if when.tzinfo else when.replace(tzinfo=UTC)) - now).total_seconds()
    else:
        seconds = float(when) if isinstance(when, int | float) else 0.0
    return max(0, int(seconds * 1000))


def _restore_environment(shadowed: Mapping[str, str | None]) -> None:
    for name, before in shadowed.items():
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before
