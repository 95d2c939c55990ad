"""One notification over HTTP: what arrives, and what counts as delivered."""

from __future__ import annotations

import hashlib
import hmac
import socket
from typing import Any

import pytest

from celery_catchup.config.receivers import Format, Receiver
from celery_catchup.notifications import messages
from celery_catchup.notifications.delivery import DeliveryError, deliver
from tests.integration.notifications.http_receivers import receiving

SECRET = "SeCrEt-of-the-tests-0123456789"
TEN = 1_770_458_400_000
PAYLOAD = messages.missed("etl <!channel>", TEN, TEN + 60_000, 3).payload(namespace="proj", now=TEN)


def test_a_message_has_the_documented_payload_and_a_signature() -> None:
    with receiving() as receiver:
        deliver(Receiver(receiver.url, secret=SECRET), PAYLOAD, timestamp=1_770_458_401)

    (message,) = receiver.messages
    signed = hmac.new(SECRET.encode(), b"1770458401." + message.body, hashlib.sha256).hexdigest()
    assert message.headers["X-Catchup-Signature"] == f"sha256={signed}"
    assert message.headers["X-Catchup-Timestamp"] == "1770458401"
    assert message.headers["X-Catchup-Id"] == PAYLOAD["id"]
    assert message.headers["Content-Type"] == "application/json"
    assert message.json == PAYLOAD
    assert message.json == {
        "version": 1,
        "id": PAYLOAD["id"],
        "kind": "missed",
        "time": "2026-02-07T10:00:00Z",
        "namespace": "proj",
        "entry": "etl <!channel>",
        "summary": "etl <!channel> missed 3 slots since 2026-02-07T10:00:00Z; beat catches up.",
        "details": {"first": "2026-02-07T10:00:00Z", "until": "2026-02-07T10:01:00Z", "slots": 3},
        "command": message.json["command"],
    }


def test_without_a_secret_there_is_no_signature_and_a_login_is_sent_as_a_header() -> None:
    with receiving() as receiver:
        url = receiver.url.replace("http://", "http://ada:p%40ss@")
        deliver(Receiver(url), PAYLOAD, timestamp=1)

    (message,) = receiver.messages
    assert "X-Catchup-Signature" not in message.headers
    assert message.headers["Authorization"] == "Basic YWRhOnBAc3M="


def test_slack_gets_a_text_that_mentions_nobody() -> None:
    with receiving() as receiver:
        deliver(Receiver(receiver.url, format=Format.SLACK), PAYLOAD, timestamp=1)

    (message,) = receiver.messages
    assert list(message.json) == ["text"]
    assert "etl &lt;!channel&gt; missed 3 slots" in message.json["text"]
    assert "<" not in message.json["text"]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (500, "it answered 500"),
        (404, "it answered 404"),
        (302, "it answered 302, a redirect, which is not followed"),
        (307, "it answered 307, a redirect, which is not followed"),
        ("hang", "no answer within 0.2 s"),
    ],
    ids=str,
)
def test_everything_but_2xx_is_a_failure_that_shows_no_secret(answer: Any, reason: str) -> None:
    with receiving() as elsewhere, receiving(answer) as receiver:
        receiver.location = elsewhere.url if str(answer).startswith("3") else ""
        with pytest.raises(DeliveryError) as caught:
            deliver(Receiver(receiver.url, secret=SECRET), PAYLOAD, timestamp=1, time_out=0.2)

    assert str(caught.value).startswith(reason)
    assert "SeCrEt" not in str(caught.value)
    assert elsewhere.messages == [], "no redirect is followed"


def test_a_receiver_that_does_not_listen_is_a_failure_that_shows_no_secret() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]

        with pytest.raises(DeliveryError, match="Connection refused") as caught:
            deliver(Receiver(f"http://127.0.0.1:{port}/SeCrEt"), PAYLOAD, timestamp=1)

    assert "SeCrEt" not in str(caught.value)
    with pytest.raises(DeliveryError):
        deliver(Receiver("http://does-not-exist.invalid/SeCrEt"), PAYLOAD, timestamp=1, time_out=1)


def test_the_same_occasion_has_the_same_id() -> None:
    def id_of(first: int, entry: str = "etl", namespace: str = "proj", now: int = TEN) -> str:
        return str(messages.missed(entry, first, TEN, 3).payload(namespace=namespace, now=now)["id"])

    assert id_of(TEN) == id_of(TEN, now=TEN + 1)
    assert len({id_of(TEN), id_of(TEN + 1), id_of(TEN, "etl2"), id_of(TEN, "etl", "other")}) == 4
