"""Extend django-celery-beat's admin: a policy for each row, its facts, and actions on its entry.

A project with an admin class of its own for periodic tasks adds `CatchupAdminMixin` to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, TypeVar

from celery.app import app_or_default
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db import transaction
from django.template.loader import render_to_string
from django.template.response import TemplateResponse
from django.utils.safestring import SafeString
from django_celery_beat.admin import PeriodicTaskAdmin
from django_celery_beat.models import PeriodicTask

from celery_catchup.config.app_settings import read_settings
from celery_catchup.config.policy import MAIN_FIELDS
from celery_catchup.config.settings import Source
from celery_catchup.django.entry_panel import open_operator, read_panel
from celery_catchup.django.forms import FIELDS, BackfillForm, CatchupPolicyForm
from celery_catchup.django.models import CatchupPolicy
from celery_catchup.error_text import counted
from celery_catchup.errors import CatchupError
from celery_catchup.operations import Operator, pauses
from celery_catchup.operations.backfills import BackfillRequest, create_backfill, preview_backfill
from celery_catchup.operations.previews import Preview, preview
from celery_catchup.operations.refusals import NoPolicyError
from celery_catchup.planning.scope import Reprocess
from celery_catchup.store import AuditAction

_SLOTS_SHOWN = 20
_Result = TypeVar("_Result")


class CatchupPolicyInline(admin.StackedInline):
    """The policy of a row; who may change the row may change its policy."""

    model = CatchupPolicy
    form = CatchupPolicyForm
    template = "celery_catchup/policy_inline.html"
    max_num = extra = 1
    verbose_name_plural = "Catch-up policy"

    def get_fieldsets(self, request: Any, obj: Any = None) -> Any:
        """Return the fields of a policy, the rare ones folded; for a reader the policy as it is stored."""
        if not self.has_change_permission(request, obj):
            return [(None, {"fields": ["policy"]})]
        more = [name for name in FIELDS if name not in MAIN_FIELDS]
        folded = {"fields": more, "classes": ["collapse"]}
        return [(None, {"fields": MAIN_FIELDS}), ("All fields of a policy", folded)]

    def has_view_permission(self, request: Any, obj: Any = None) -> bool:
        """Tell whether the user may see the row."""
        return self._may(request, "view") or self._may(request, "change")

    def has_change_permission(self, request: Any, obj: Any = None) -> bool:
        """Tell whether the user may change the row."""
        return self._may(request, "change")

    has_add_permission = has_delete_permission = has_change_permission

    def _may(self, request: Any, verb: str) -> bool:
        return bool(request.user.has_perm(f"django_celery_beat.{verb}_periodictask"))


class CatchupAdminMixin:
    """Adds the policy, the facts and the actions to an admin class for periodic tasks."""

    message_user: Callable[..., None]
    admin_site: Any

    def get_inlines(self, request: Any, obj: Any) -> list[Any]:
        """Add the policy."""
        return [*super().get_inlines(request, obj), CatchupPolicyInline]  # type: ignore[misc]

    def get_readonly_fields(self, request: Any, obj: Any = None) -> Sequence[str]:
        """Add the facts, read for the user of this request."""
        return (*super().get_readonly_fields(request, obj), "catch_up")  # type: ignore[misc]

    def get_fieldsets(self, request: Any, obj: Any = None) -> Any:
        """Show the facts of a row that exists."""
        found = [one for one in super().get_fieldsets(request, obj) if one[0] != "Catch-up"]  # type: ignore[misc]
        return found if obj is None else [*found, ("Catch-up", {"fields": ("catch_up",)})]

    @admin.display(description="Entry")
    def catch_up(self, row: Any) -> SafeString:
        """Write the facts about the row's entry."""
        user = getattr(row, "_catchup_user", None)
        return render_to_string("celery_catchup/panel.html", {"panel": read_panel(row, user), "row": row})

    def get_object(self, request: Any, object_id: str, from_field: Any = None) -> Any:
        """Return the row; its facts are read for this user."""
        row = super().get_object(request, object_id, from_field)  # type: ignore[misc]
        if row is not None:
            row._catchup_user = request.user
        return row

    def changelist_view(self, request: Any, extra_context: Any = None) -> Any:
        """Show the list without the warning about another scheduler, if ours is set."""
        response = super().changelist_view(request, extra_context)  # type: ignore[misc]
        scheduler = str(app_or_default().conf.beat_scheduler)
        if scheduler.startswith("celery_catchup") or scheduler == "catchup":
            getattr(response, "context_data", {})["wrong_scheduler"] = False
        return response

    # -- the audit trail -------------------------------------------------------------------

    def log_addition(self, request: Any, obj: Any, message: Any) -> Any:
        """Log a new row, in our audit trail, too."""
        found = super().log_addition(request, obj, message)  # type: ignore[misc]
        self._record(request, AuditAction.ENTRIES_ADD, [obj.name], catchup=_policy_of(obj))
        return found

    def log_change(self, request: Any, obj: Any, message: Any) -> Any:
        """Log a change of a row or its policy, in our audit trail, too."""
        found = super().log_change(request, obj, message)  # type: ignore[misc]
        if message:
            changed = _changed_fields(message)
            self._record(
                request, AuditAction.ENTRIES_EDIT, [obj.name], catchup=_policy_of(obj), changed=changed
            )
        return found

    def delete_model(self, request: Any, obj: Any) -> None:
        """Delete a row, and record it."""
        name = obj.name
        super().delete_model(request, obj)  # type: ignore[misc]
        self._record(request, AuditAction.ENTRIES_DELETE, [name])

    def delete_queryset(self, request: Any, queryset: Any) -> None:
        """Delete the selected rows, and record it."""
        names = list(queryset.values_list("name", flat=True))
        super().delete_queryset(request, queryset)  # type: ignore[misc]
        self._record(request, AuditAction.ENTRIES_DELETE, names)

    @admin.action(description=PeriodicTaskAdmin.enable_tasks.short_description)
    def enable_tasks(self, request: Any, queryset: Any) -> None:
        """Enable the selected rows, and record it."""
        super().enable_tasks(request, queryset)  # type: ignore[misc]
        self._record_switch(request, queryset, "enable")

    @admin.action(description=PeriodicTaskAdmin.disable_tasks.short_description)
    def disable_tasks(self, request: Any, queryset: Any) -> None:
        """Disable the selected rows, and record it."""
        super().disable_tasks(request, queryset)  # type: ignore[misc]
        self._record_switch(request, queryset, "disable")

    @admin.action(description=PeriodicTaskAdmin.toggle_tasks.short_description)
    def toggle_tasks(self, request: Any, queryset: Any) -> None:
        """Enable the selected rows that are disabled, disable the others, and record it."""
        super().toggle_tasks(request, queryset)  # type: ignore[misc]
        self._record_switch(request, queryset, "toggle")

    def _record_switch(self, request: Any, queryset: Any, switch: str) -> None:
        names = list(queryset.values_list("name", flat=True))
        self._record(request, AuditAction.ENTRIES_EDIT, names, switch=switch)

    def _record(self, request: Any, action: AuditAction, names: Sequence[str], **parameters: Any) -> None:
        """Record a change when the database has it. If the store cannot be used, the change stays, and the
        user sees that only Django's own history has it."""

        def record() -> None:
            try:
                if read_settings(app_or_default(), only=("source",)).source is Source.DJANGO:
                    with open_operator(request.user, only=names[0]) as operator:
                        operator.audit.record(operator.change(action, entries=names, **parameters))
            except CatchupError as error:
                message = f"The change is not in the audit trail of celery_catchup: {error}"
                self.message_user(request, message, messages.WARNING)

        if names:
            # An operator closes the connection to the database, which would roll back an open transaction.
            transaction.on_commit(record)

    # -- actions ---------------------------------------------------------------------------

    actions = (
        *PeriodicTaskAdmin.actions,
        "pause_entries",
        "resume_entries",
        "preview_entries",
        "backfill_entries",
    )

    @admin.action(description="Pause selected entries (their slots wait)", permissions=["change"])
    def pause_entries(self, request: Any, queryset: Any) -> None:
        """Pause the entries of these rows."""

        def pause(operator: Operator) -> list[pauses.Paused]:
            names = self._with_policy(request, operator, queryset)
            return pauses.pause(operator, names, reason="paused in the admin") if names else []

        self._report(request, "Paused", self._operate(request, pause))

    @admin.action(description="Resume selected entries (missed slots are caught up)", permissions=["change"])
    def resume_entries(self, request: Any, queryset: Any) -> None:
        """Resume the entries of these rows, and catch up as their policies say."""

        def resume(operator: Operator) -> Sequence[pauses.Paused]:
            names = self._with_policy(request, operator, queryset)
            return pauses.resume(operator, names, with_previews=False).entries if names else []

        self._report(request, "Resumed", self._operate(request, resume))

    @admin.action(description="Preview the catch-up of selected entries", permissions=["view"])
    def preview_entries(self, request: Any, queryset: Any) -> Any:
        """Show what beat would do with the slots that these entries have missed."""

        def look(operator: Operator) -> list[Preview]:
            names = self._with_policy(request, operator, queryset)
            return preview(operator, names) if names else []

        found = self._operate(request, look)
        if not found:
            return None
        return self._page(request, queryset, "Preview of the catch-up", previews=_shown(found))

    @admin.action(description="Backfill selected entries…", permissions=["change"])
    def backfill_entries(self, request: Any, queryset: Any) -> Any:
        """Ask for a range of time, show its slots, and create a backfill for each entry."""
        asked = "start" in request.POST
        form = BackfillForm(request.POST if asked else None)
        if not asked or not form.is_valid():
            return self._page(request, queryset, "Backfill", form=form)
        create = "create" in request.POST

        def work(operator: Operator) -> list[Any]:
            wanted = _requests(self._with_policy(request, operator, queryset), form.cleaned_data)
            return [(create_backfill if create else preview_backfill)(operator, one) for one in wanted]

        found = self._operate(request, work)
        if found and create:
            slots = sum(one.total for one in found)
            made = f"{counted(len(found), 'backfill')} of {counted(slots, 'slot')}"
            self.message_user(request, f"Created {made}; beat starts with its next tick.")
            return None
        return self._page(request, queryset, "Backfill", form=form, previews=_shown(found or []))

    def _page(self, request: Any, queryset: Any, title: str, **values: Any) -> TemplateResponse:
        context = {
            **self.admin_site.each_context(request),
            "title": title,
            "opts": PeriodicTask._meta,
            "rows": queryset,
            "checkbox": ACTION_CHECKBOX_NAME,
            "action": request.POST.get("action", ""),
            **values,
        }
        return TemplateResponse(request, "celery_catchup/action.html", context)

    def _operate(self, request: Any, work: Callable[[Operator], _Result]) -> _Result | None:
        """Call an operation for this user; None and a message if it fails."""
        try:
            with open_operator(request.user) as operator:
                return work(operator)
        except CatchupError as error:
            self.message_user(request, str(error), messages.ERROR)
            return None

    def _with_policy(self, request: Any, operator: Operator, queryset: Any) -> list[str]:
        """Return the names of the rows that have a policy; say why others are left out."""
        names = []
        for name in queryset.values_list("name", flat=True):
            try:
                operator.with_policy([name], advice="give it one on its page")
            except NoPolicyError as error:
                self.message_user(request, str(error), messages.WARNING)
            except CatchupError:
                self.message_user(request, f"{name} is disabled, so it is not an entry", messages.WARNING)
            else:
                names.append(name)
        return names

    def _report(self, request: Any, done: str, found: Sequence[pauses.Paused] | None) -> None:
        changed = [one.entry for one in found or () if one.changed]
        if changed:
            self.message_user(request, f"{done}: {', '.join(changed)}.")
        if same := [one.entry for one in found or () if not one.changed]:
            self.message_user(request, f"Not changed: {', '.join(same)}.", messages.WARNING)


class CatchupPeriodicTaskAdmin(CatchupAdminMixin, PeriodicTaskAdmin):
    """django-celery-beat's admin, with catch-up."""


def _policy_of(row: Any) -> Any:
    """Return the policy that the database has for a row, as it is written; None without one."""
    return CatchupPolicy.objects.filter(periodic_task=row).values_list("policy", flat=True).first()


def _changed_fields(message: Any) -> list[str]:
    """Return the names in Django's description of a change: fields, and ``catch-up policy``."""
    found: list[str] = []
    for one in message if isinstance(message, list) else ():
        for change in one.values():
            found += [change["name"]] if "name" in change else change.get("fields", [])
    return found


def _requests(names: Sequence[str], given: dict[str, Any]) -> list[BackfillRequest]:
    reprocess = Reprocess(given["reprocess"])
    return [
        BackfillRequest(entry=name, start=given["start"], end=given["end"], reprocess=reprocess)
        for name in names
    ]


def _shown(found: Sequence[Preview]) -> list[tuple[Preview, list[Any], int]]:
    """Return each preview with its first slots, and how many are not shown."""
    first = [(one, list(islice(one.slots, _SLOTS_SHOWN))) for one in found]
    return [(one, slots, len(one.slots) - len(slots)) for one, slots in first]


if admin.site.is_registered(PeriodicTask):
    admin.site.unregister(PeriodicTask)
admin.site.register(PeriodicTask, CatchupPeriodicTaskAdmin)
