"""Requests for explanations: why something was decided, and what another policy would have decided."""

from __future__ import annotations

from pydantic import Field

from celery_catchup.config.policy_choice import PolicyChoice
from celery_catchup.flower.api.requests import EntryRequest
from celery_catchup.flower.api.values import Absent, Duration, SinceTime, Time


class WhyRequest(EntryRequest):
    """Which time of an entry to explain."""

    at: Time = Field(description="A time, past or future; a slot of the entry, or another one.")


class WhatIfRequest(EntryRequest):
    """Which recorded outages to play again, and under which policy."""

    window: Duration | Absent = Field(None, description="Use this window, such as `6h`.")
    policy: PolicyChoice | Absent = Field(None, description="Use this policy.")
    since: SinceTime | Absent = Field(
        None, description="Outages since: a time, or how long ago (`30d`); by default 90 days."
    )
