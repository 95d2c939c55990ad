"""The form of a policy; its fields are those of the settings' own model."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from celery.app import app_or_default
from django import forms
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from celery_catchup.beat.row_policies import has_policy_in_settings, policy_mistakes, row_problems
from celery_catchup.config.app_settings import read_settings
from celery_catchup.config.field_descriptions import FieldDescription, FieldKind, describe_fields
from celery_catchup.config.policy import Policy
from celery_catchup.config.times import parse_time
from celery_catchup.django.models import CatchupPolicy
from celery_catchup.operations import Operator

FIELDS = {one.name: one for one in describe_fields(Policy)}


class PolicyForm(forms.ModelForm):
    """A policy whose fields are texts; mistakes are shown beside them."""

    class Meta:
        """The model; its only own field is written by `clean`."""

        model = CatchupPolicy
        fields = ()

    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **given)
        names = Policy.spellings()
        for name, value in self.instance.policy.items():
            field = FIELDS.get(names.get(name, name))
            if field is not None:
                self.initial[field.name] = field.to_text(value)

    def clean(self) -> dict[str, Any]:
        """Check the policy as the settings are checked, and keep it."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        policy = {
            name: field.parse_text(text) for name, field in FIELDS.items() if (text := cleaned.get(name))
        }
        app = app_or_default()
        if not policy:
            self.add_error(None, "the policy is empty; set a window such as 6h, or delete it")
        for mistake in policy_mistakes(app, policy) if policy else ():
            name = mistake.where.partition(".")[0].partition("[")[0]
            self.add_error(name if name in self.fields else None, mistake.problem)
        for problem in row_problems(self.instance.periodic_task, read_settings(app, only=("poll_interval",))):
            self.add_error(None, problem)
        self.instance.policy = policy
        return cleaned

    def in_settings(self) -> bool:
        """Return whether ``catchup_entries`` names the row, so that this policy has no effect."""
        return has_policy_in_settings(app_or_default(), self.instance.periodic_task.name)


def _form_field(field: FieldDescription) -> forms.Field:
    choices = field.options
    common = {"label": field.name, "required": False, "help_text": _help(field, with_values=not choices)}
    if not choices:
        placeholder = {"placeholder": field.default or "", "class": "vTextField"}
        return forms.CharField(**common, widget=forms.TextInput(placeholder), max_length=10_000)
    default = f"{field.default.lower()} (default)" if field.default else "default"
    return forms.ChoiceField(**common, choices=[("", default), *((one, one) for one in choices)])


def _help(field: FieldDescription, *, with_values: bool) -> SafeString:
    values = field.values + (", as JSON" if field.kind is FieldKind.JSON else "")
    text = f"{field.meaning} ({values})" if with_values else field.meaning
    parts = enumerate(text.split("`"))
    return format_html_join(
        "", "{}", ((format_html("<code>{}</code>", one) if index % 2 else one,) for index, one in parts)
    )


_metaclass: Any = type(PolicyForm)
CatchupPolicyForm = _metaclass(
    "CatchupPolicyForm",
    (PolicyForm,),
    {"__module__": __name__, **{name: _form_field(field) for name, field in FIELDS.items()}},
)
"""The form with a field for each field of a policy."""


class BackfillForm(forms.Form):
    """The range of a backfill."""

    start = forms.CharField(help_text="The first slot, or a time before it: 2026-02-07T10:00Z, 2d ago.")
    end = forms.CharField(help_text="The last slot, or a time after it.", initial="now")
    reprocess = forms.ChoiceField(
        choices=[("none", "missing only"), ("failed", "missing and failed"), ("completed", "all, run again")],
        help_text="Which slots that already have a run run again.",
    )

    def clean_start(self) -> datetime:
        """Parse the start of the range."""
        return self._moment("start")

    def clean_end(self) -> datetime:
        """Parse the end of the range; a date counts as a whole day."""
        return self._moment("end", whole_day=True)

    def _moment(self, name: str, *, whole_day: bool = False) -> datetime:
        zone = app_or_default().timezone
        try:
            return parse_time(
                self.cleaned_data[name], now=Operator.clock.now(), zone=zone, since=True, whole_day=whole_day
            )
        except ValueError as error:
            raise forms.ValidationError(str(error)) from None
