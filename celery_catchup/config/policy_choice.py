"""Policies in one word, for previews and what-ifs."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import assert_never

from celery_catchup.config.overlap_policy import OverlapPolicy
from celery_catchup.config.policy import Select


class PolicyChoice(StrEnum):
    """A policy in one word: every slot, the newest, the first, none."""

    ALL = "all"
    LATEST = "latest"
    SKIP = "skip"
    OFF = "off"

    @property
    def fields(self) -> Mapping[str, object]:
        """The fields of a policy that it sets."""
        match self:
            case PolicyChoice.ALL:
                return {"select": Select.ALL, "overlap_policy": OverlapPolicy.ALL}
            case PolicyChoice.LATEST:
                return {"select": Select.LATEST}
            case PolicyChoice.SKIP:
                return {"select": Select.ALL, "overlap_policy": OverlapPolicy.SKIP}
            case PolicyChoice.OFF:
                return {"select": Select.OFF}
            case _:
                assert_never(self)
