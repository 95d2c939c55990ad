"""Describe queues and exchanges as plain values, so that another process can declare them later."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import kombu

_kombu: Any = kombu  # its classes carry no types


def described(entity: Any) -> dict[str, Any]:
    """Describe what declares a queue or an exchange."""
    kind = "queue" if isinstance(entity, _kombu.Queue) else "exchange"
    return {"kind": kind, **entity.as_dict(recurse=True)}


def restored(description: Mapping[str, Any]) -> Any:
    """Restore the queue or exchange that was described."""
    fields = _given(description)
    if fields.pop("kind") == "exchange":
        return _kombu.Exchange(**fields)
    bindings = [_kombu.binding(**_with_exchange(_given(bound))) for bound in fields.pop("bindings", ())]
    return _kombu.Queue(**_with_exchange(fields), bindings=bindings)


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _with_exchange(fields: dict[str, Any]) -> dict[str, Any]:
    if "exchange" in fields:
        fields["exchange"] = _kombu.Exchange(**_given(fields["exchange"]))
    return fields
