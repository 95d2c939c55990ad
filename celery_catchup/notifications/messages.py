"""The content of notifications: one function for each kind, and the shapes in which they are sent."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from celery_catchup.config.receivers import Format, NotificationKind
from celery_catchup.error_text import counted, shortened
from celery_catchup.events.command_lines import backfill_line, command_line
from celery_catchup.model import Instant, to_rfc3339

VERSION = 1
"""Of the payload; it grows when a field changes its meaning or goes."""
_IDS = uuid.UUID("0b5ad2a6-5b0f-5f0e-8f0c-6a1f0c3b9d52")
_LONGEST = 300
"""Characters of an error or a reason."""


@dataclass(frozen=True, slots=True)
class Notification:
    """One notification. ``about`` tells this occasion from others of its kind and entry: the same occasion
    has the same id, whichever beat reports it."""

    kind: NotificationKind
    entry: str | None
    about: str
    summary: str
    details: Mapping[str, Any] = field(default_factory=dict)
    command: str | None = None

    def payload(self, *, namespace: str, now: Instant) -> dict[str, Any]:
        """Return the payload, as the reference page has it."""
        name = "\x1f".join((namespace, self.kind, self.entry or "", self.about))
        return {
            "version": VERSION,
            "id": str(uuid.uuid5(_IDS, name)),
            "kind": str(self.kind),
            "time": to_rfc3339(now),
            "namespace": namespace,
            "entry": self.entry,
            "summary": self.summary,
            "details": dict(self.details),
            "command": self.command,
        }


def shaped(payload: Mapping[str, Any], shape: Format) -> dict[str, Any]:
    """Return what is sent of a payload: all of it, or a text for Slack."""
    if shape is Format.JSON:
        return dict(payload)
    command = f"\n`{payload['command']}`" if payload.get("command") else ""
    text = f"*{payload['namespace']}*: {payload['summary']}{command}"
    # Slack reads <…> and & as markup: a name could mention a whole channel.
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return {"text": escaped}


def missed(entry: str, first: Instant, until: Instant, slots: int) -> Notification:
    """Report that slots of an entry were missed, and are being caught up."""
    return Notification(
        NotificationKind.MISSED,
        entry,
        str(first),
        f"{entry} missed {counted(slots, 'slot')} since {to_rfc3339(first)}; beat catches up.",
        {"first": to_rfc3339(first), "until": to_rfc3339(until), "slots": slots},
        command_line("runs", entry, "--since", to_rfc3339(first)),
    )


def not_recovered(
    entry: str, outage: Instant, first: Instant, last: Instant, reasons: Mapping[str, int]
) -> Notification:
    """Report that slots of an entry were missed and will not run by themselves."""
    count = sum(reasons.values())
    return Notification(
        NotificationKind.NOT_RECOVERED,
        entry,
        str(outage),
        f"{entry} lost {counted(count, 'slot')} from {to_rfc3339(first)} on ({', '.join(reasons)}).",
        {"first": to_rfc3339(first), "last": to_rfc3339(last), "slots": count, "reasons": dict(reasons)},
        backfill_line(entry, first, last),
    )


def overdue(entry: str, slot: Instant, deadline: Instant, slots: int, state: str | None) -> Notification:
    """Report that slots of an entry have missed their deadline."""
    return Notification(
        NotificationKind.OVERDUE,
        entry,
        f"{slot} {deadline}",
        f"{entry} is overdue: its slot of {to_rfc3339(slot)} has not succeeded by {to_rfc3339(deadline)}.",
        {"slot": to_rfc3339(slot), "deadline": to_rfc3339(deadline), "slots": slots, "state": state},
        command_line("runs", entry, "--overdue"),
    )


def recovered(entry: str, slot: Instant, deadline: Instant) -> Notification:
    """Report that an entry has no overdue slot any more."""
    return Notification(
        NotificationKind.RECOVERED,
        entry,
        f"{slot} {deadline}",
        f"{entry} is not overdue any more.",
        {"slot": to_rfc3339(slot), "deadline": to_rfc3339(deadline)},
    )


def dead(entry: str, hour: int, runs: int, record: Mapping[str, Any], run_id: str) -> Notification:
    """Report that runs of an entry became dead letters; ``record`` is the last of them."""
    error, slot = _cut(record.get("error") or "unknown"), to_rfc3339(int(record["slot"]))
    return Notification(
        NotificationKind.DEAD,
        entry,
        str(hour),
        f"{entry}: {'a run' if runs == 1 else f'{runs} runs'} failed for good; the last, of {slot}: {error}",
        {"runs": runs, "runId": run_id, "scheduledTime": slot, "error": error},
        command_line("dlq", "list", entry),
    )


def held(entry: str, since: Instant, runs: int | None) -> Notification:
    """Report that the catch-up of an entry waits for an approval."""
    size = "of more runs than hold_above" if runs is None else f"of {counted(runs, 'run')}"
    return Notification(
        NotificationKind.HELD,
        entry,
        str(since),
        f"{entry} is held: a catch-up {size} waits for an approval.",
        {"runs": runs},
        command_line("approve", entry),
    )


def entry_failed(entry: str, since: Instant, reason: str) -> Notification:
    """Report that an entry cannot be dispatched, and is retried."""
    return Notification(
        NotificationKind.ENTRY_FAILED,
        entry,
        str(since),
        f"{entry} cannot be dispatched: {_cut(reason)}",
        {"since": to_rfc3339(since), "reason": _cut(reason)},
        command_line("status"),
    )


def leader_changed(leader: str, epoch: int, previous: str | None) -> Notification:
    """Report that another beat leads."""
    return Notification(
        NotificationKind.LEADER_CHANGED,
        None,
        str(epoch),
        f"Beat {leader} leads now (epoch {epoch}).",
        {"leader": leader, "epoch": epoch, "previous": previous},
        command_line("status"),
    )


def state_lost(what: str, now: Instant) -> Notification:
    """Report that the server has lost acknowledged writes."""
    return Notification(
        NotificationKind.STATE_LOST,
        None,
        str(now),
        f"State was lost: {what}",
        {"what": what},
        command_line("doctor"),
    )


def digest_command() -> str:
    """Return the command that a digest suggests; the store writes the rest of it."""
    return command_line("status")


def trial(now: Instant) -> Notification:
    """Make the test that ``notify test`` sends."""
    summary = "This is a test of notifications; nothing has happened."
    return Notification(NotificationKind.OVERDUE, None, f"test {now}", summary, {"test": True})


def _cut(text: object) -> str:
    return shortened(" ".join(str(text).split()), _LONGEST)
