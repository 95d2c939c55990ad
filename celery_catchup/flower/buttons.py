"""Buttons that change something: each names its call of the HTTP API, and the page's script makes it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from urllib.parse import quote

from celery_catchup.flower.drawing.svg import Markup, element


def action(
    words: str,
    path: str,
    body: Mapping[str, object],
    *,
    label: str | None = None,
    kind: str = "",
    confirm: str | None = None,
    yes: str | None = None,
    done: str | None = None,
    look: str | None = None,
) -> Markup:
    """A button for one call. ``confirm`` is asked before, ``yes`` is what agrees; ``done`` is said after."""
    return element(
        "button",
        words,
        type="button",
        class_=f"cu-btn {kind}".strip(),
        aria_label=label,
        data_path=path,
        data_body=json.dumps(body),
        data_confirm=confirm,
        data_yes=yes,
        data_done=done,
        data_look=look,
    )


def pause_button(entry: str, paused: bool) -> Markup:  # noqa: FBT001 — templates call it
    """Pause or resume, whichever is the other."""
    name = quote(entry, safe="")
    if paused:
        return action(
            "Resume",
            f"/schedules/{name}/resume",
            {},
            label=f"Resume {entry}",
            confirm=f"Resume “{entry}”?",
            done=f"“{entry}” is resumed.",
            look="resume",
        )
    return action(
        "Pause",
        f"/schedules/{name}/pause",
        {},
        label=f"Pause {entry}",
        done=f"“{entry}” is paused; no slot of it is decided until it is resumed.",
    )
