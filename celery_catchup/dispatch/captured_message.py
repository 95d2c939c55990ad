"""A message that Celery built and that did not leave; a template is made from it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from celery.beat import ScheduleEntry
from celery.utils.nodenames import anon_nodename

from celery_catchup.config.settings import MarkTasks
from celery_catchup.dispatch import badges
from celery_catchup.dispatch import header_names as names
from celery_catchup.dispatch.dispatch_error import DispatchError
from celery_catchup.dispatch.placeholders import (
    inside_json,
    placeholder,
    replace_text,
    split_after_placeholders,
    to_json,
)
from celery_catchup.dispatch.task_call import TaskCall
from celery_catchup.store import Template

_SENDER = "celery-catchup"


@dataclass(frozen=True)
class CapturedMessage:
    """The text of a message, where it would have gone, and the call that made it."""

    call: TaskCall
    text: str
    queue: str | None = None
    db: int | None = None
    routing_key: str = ""
    queue_name: str = ""

    def template(self, badge: MarkTasks) -> Template:
        """Put placeholders where two runs, sendings or entries differ; show a catch-up run by ``badge``."""
        tree = json.loads(self.text)
        if "id" not in tree["headers"]:
            raise DispatchError(
                "invalid", "task_protocol 1 keeps the task's id inside the body; set task_protocol to 2"
            )
        call = self.call
        headers = replace_text(tree["headers"], call.task_id, placeholder("task_id")) | self._corrections()
        if headers["ignore_result"] is True:  # unless a hook has changed it
            headers["ignore_result"] = call.ignore_result
        properties = replace_text(tree["properties"], call.task_id, placeholder("task_id"))
        if "delivery_tag" in properties:
            properties["delivery_tag"] = placeholder("delivery_tag")
        sender = f"{_SENDER}@{call.app.main}"
        self._steady(headers, "origin", anon_nodename(), sender)
        self._steady(properties, "reply_to", call.app.thread_oid, str(uuid.uuid5(uuid.NAMESPACE_OID, sender)))
        fields = {name: headers.get(name) for name in ("task", "argsrepr", "kwargsrepr")}
        fixed, inputs = split_inputs(call.entry, {**fields, "body": tree["body"]}, badge)
        shared = {name: start + placeholder(name) for name, start in fixed.items()}
        body = shared.pop("body", tree["body"])
        headers |= shared
        if badge in badges.IN_NAME and headers.get("shadow") is None:
            headers["shadow"] = badges.badged_name(headers["task"])
        base = Template(
            to_json({**tree, "body": body, "headers": headers, "properties": properties}),
            queue=self.queue,
            db=self.db,
            expires_ms=call.expires_ms,
            countdown_ms=call.countdown_ms,
            routing_key=self.routing_key,
            priority=tree["properties"].get("priority") or tree.get("priority") or 0,
            queue_name=self.queue_name,
        )
        return base.with_inputs(inputs)

    def _steady(self, fields: dict[str, Any], name: str, ours: str, steady: str) -> None:
        """Use one value for all processes of the app: this process's own would make new templates at every
        start of beat. Values of the user's stay."""
        if fields.get(name) == ours and name not in self.call.entry.options:
            fields[name] = steady

    def _corrections(self) -> dict[str, Any]:
        options = self.call.entry.options
        # A run that is sent from within a task is not a child of that task.
        corrections = {
            "root_id": options.get("root_id") or placeholder("task_id"),
            "parent_id": options.get("parent_id"),
        }
        if self.call.expires_ms is not None:
            corrections["expires"] = placeholder("expires")
        if self.call.countdown_ms is not None:
            corrections["eta"] = placeholder("eta")
        if names.RUN_ID in self.call.headers:
            corrections[names.RUN_ID] = placeholder("run_id")
        return corrections


def split_inputs(
    entry: ScheduleEntry, fields: Mapping[str, Any], badge: MarkTasks
) -> tuple[dict[str, str], dict[str, str]]:
    """Split the fields of a message that each entry has its own: into what they begin with in all messages of
    the same form, and the entry's own text as JSON. The form of ``kwargsrepr`` may include a badge."""
    fixed, inputs = dict[str, str](), dict[str, str]()
    for name, value in fields.items():
        if isinstance(value, str):
            shown = badges.shown_kwargs(entry, value, badge) if name == "kwargsrepr" else value
            fixed[name], own = split_after_placeholders(shown)
            inputs[name] = inside_json(own)
    return fixed, inputs
