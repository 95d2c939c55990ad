"""One stored entry for each customer."""

from typing import Any

from django.db import transaction

import celery_catchup
from reports.celery import app
from reports.models import Customer

KIND = {"kind": "daily-report"}
"""The label of all entries that this module makes."""


def fields_of(customer: Customer) -> dict[str, Any]:
    """Return the entry of a customer; users choose its time, never its task."""
    return {
        "name": f"daily-report-{customer.pk}",
        "task": "reports.daily",
        "schedule": f"0 {customer.hour} * * *",
        "kwargs": {"customer": customer.pk},
        "catchup": {"window": "1d", "select": "latest", "timezone": customer.timezone},
        "labels": {**KIND, "customer": str(customer.pk)},
    }


def entries() -> Any:
    """Return the stored entries of the app; calls share their connections."""
    return celery_catchup.entries(app, actor="reports")


@transaction.atomic
def save(customer: Customer) -> None:
    """Save a customer and the entry; `ConfigurationError` with every mistake, and then neither is saved.

    The entry is written after the commit, so that none exists for a customer who was rolled back.
    """
    customer.save()
    wanted = fields_of(customer)
    entries().apply([wanted], dry_run=True)
    transaction.on_commit(lambda: entries().apply([wanted]))


@transaction.atomic
def delete(customer: Customer) -> None:
    """Delete a customer and the entry."""
    name = fields_of(customer)["name"]
    customer.delete()
    transaction.on_commit(lambda: entries().delete(name))


def sync() -> int:
    """Make the entries equal to the customers; return how many changed. Repeating it changes nothing."""
    wanted = [fields_of(customer) for customer in Customer.objects.all()]
    return len(entries().apply(wanted, prune=KIND).changes)
