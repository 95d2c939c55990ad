"""Merge an entry's policy with those of its schedules, and warn about fields without effect."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from celery_catchup.config.mistakes import Mistakes
from celery_catchup.config.overlap_policy import OverlapPolicy
from celery_catchup.config.policy import Policy, Select
from celery_catchup.config.schedule_syntax import ScheduleForm, ScheduleSpec
from celery_catchup.error_text import shown


def entry_warnings(name: str, policy: Policy | None, form: ScheduleForm, *, own: bool) -> Iterator[str]:
    """Yield a warning for each setting of the entry whose effect may not be what the user expects."""
    subject = f"entry {shown(name)}:"
    given = policy.model_fields_set if policy is not None else ()
    if policy is not None and policy.max_runs is None and "keep" in given:
        yield f"{subject} keep has no effect without max_runs; set max_runs, or remove keep"
    if "overlap_policy" not in given and (
        (policy is not None and "select" in given and policy.select is Select.ALL)
        or any(spec.overrides is not None and spec.overrides.select is Select.ALL for spec in form.start)
    ):
        yield (
            f"{subject} select: all (catchup: all) with the default overlap_policy, skip, recovers only the "
            "first missed slot; set overlap_policy to all to recover every one, or to skip if one is enough"
        )
    if policy is not None and policy.max_span is not None and "overlap_policy" not in given:
        yield (
            f"{subject} max_span with the default overlap_policy, skip, recovers only the first span of a "
            "longer gap; set overlap_policy to all to recover every one, or to skip if one is enough"
        )
    if policy is not None and own and policy.select is Select.OFF:
        for spec in form.start:
            if spec.overrides is not None and spec.overrides.window and spec.overrides.select is None:
                yield (
                    f"{subject} the window of {spec.where} has no effect, because the entry's own policy is "
                    "False; remove one of them, or add select: all to the schedule"
                )


def merge_policy(
    policy: Policy | None, form: ScheduleForm, *, own: bool, managed: bool
) -> tuple[Policy | None, ScheduleForm]:
    """Check what each schedule sets for itself against its entry's policy, and return both.

    ``own`` is true if the policy was written for this entry, not for all others (``*``).
    """
    if policy is None and managed:
        policy = Policy(select=Select.OFF)
    if policy is None:
        return None, form
    if policy.select is Select.OFF and not own:
        # Catch-up was not turned off for this very entry, so its schedules with a window are caught up.
        form = replace(form, start=tuple(_selecting(spec) for spec in form.start))
    mistakes = Mistakes()
    for spec in form.start:
        if spec.overrides is not None:
            with mistakes.collect():
                spec.overrides.over(policy, where=spec.where)
    mistakes.raise_if_any()
    return _overlapping(policy, form), form


def _overlapping(policy: Policy, form: ScheduleForm) -> Policy:
    """With catch-up off, live slots run as under Celery unless the policy sets ``overlap_policy``."""
    recovers = [
        spec for spec in form.start if spec.overrides and spec.overrides.select not in (None, Select.OFF)
    ]
    if policy.select is not Select.OFF or recovers or "overlap_policy" in policy.model_fields_set:
        return policy
    live = policy.model_copy(update={"overlap_policy": OverlapPolicy.ALLOW})
    live.model_fields_set.discard(
        "overlap_policy"
    )  # not written by the user, so a preview with a window drops it
    return live


def _selecting(spec: ScheduleSpec) -> ScheduleSpec:
    """Let a schedule with a window select all slots, as a policy with a window does."""
    overrides = spec.overrides
    if overrides is None or overrides.window is None or overrides.select is not None:
        return spec
    return replace(spec, overrides=overrides.model_copy(update={"select": Select.ALL}))
