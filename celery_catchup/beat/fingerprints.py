"""Fingerprints of entries: a text that changes when their slots change, and not with a restart."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import tzinfo

from celery_catchup.beat.celery_schedules import fingerprint
from celery_catchup.config.drift import FINGERPRINT_VERSION
from celery_catchup.config.policy import Policy
from celery_catchup.config.schedule_syntax import ScheduleForm, ScheduleSpec
from celery_catchup.model import to_instant, to_rfc3339
from celery_catchup.planning.entry import Role
from celery_catchup.timetables.zones import zone_named

_BETWEEN = " | "


class Shape:
    """The schedules of an entry with their zones, roles and dates."""

    def __init__(self, form: ScheduleForm, policy: Policy | None, zone: tzinfo) -> None:
        self.form, self.policy = form, policy
        self.zone = zone_named(policy.timezone) if policy is not None and policy.timezone else zone

    def roles(self) -> Iterator[tuple[Role, ScheduleSpec]]:
        """Each schedule with what its slots do, in the order of their positions."""
        form = self.form
        for role, specs in ((Role.START, form.start), (Role.STOP, form.stop), (Role.RESTART, form.restart)):
            for spec in specs:
                yield role, spec

    def zone_of(self, spec: ScheduleSpec) -> tzinfo:
        """The zone in which a cron string is read."""
        own = spec.overrides.timezone if spec.overrides is not None else None
        return zone_named(own) if own else self.zone

    def fingerprint(self) -> str:
        """A text that changes with the slots of the entry."""
        return _BETWEEN.join(FINGERPRINT_VERSION + self._shape(role, spec) for role, spec in self.roles())

    def former_fingerprint(self) -> str:
        """The text of version 0.1, which knew nothing of roles, of dates and of a schedule's own zone."""
        return _BETWEEN.join(_source(spec, self.zone) for spec in self.form)

    def _shape(self, role: Role, spec: ScheduleSpec) -> str:
        parts = [] if role is Role.START else [str(role)]
        parts += [f"#{spec.id}"] if spec.id else []
        parts.append(_source(spec, self.zone_of(spec)))
        for word, name in (("from", "start_date"), ("until", "end_date")):
            moment = getattr(spec.overrides, name, None) or getattr(self.policy, name, None)
            parts += [word, to_rfc3339(to_instant(moment))] if moment is not None else []
        return " ".join(parts)


def _source(spec: ScheduleSpec, zone: tzinfo) -> str:
    return f"{spec.source}@{zone}" if isinstance(spec.source, str) else fingerprint(spec.source, zone=zone)
