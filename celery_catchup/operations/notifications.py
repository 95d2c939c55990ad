"""Test the receivers of notifications."""

from __future__ import annotations

from dataclasses import dataclass

from celery_catchup.config.app_settings import read_settings
from celery_catchup.notifications.delivery import DeliveryError, deliver
from celery_catchup.notifications.messages import trial
from celery_catchup.operations.operator import Operator


@dataclass(frozen=True, slots=True)
class TestedReceiver:
    """A receiver, without what may be secret of its URL; ``problem`` is null if it accepted the test."""

    receiver: str
    problem: str | None


def send_test(operator: Operator) -> list[TestedReceiver]:
    """Send a test to each receiver, one after the other."""
    settings = read_settings(operator.app, only=["notify"])
    now = operator.now()
    payload = trial(now).payload(namespace=operator.store.namespace, now=now)
    found = []
    for one in settings.notify:
        try:
            deliver(one, payload, timestamp=now // 1000)
        except DeliveryError as error:
            found.append(TestedReceiver(one.shown, str(error)))
        else:
            found.append(TestedReceiver(one.shown, None))
    return found
