"""Deliver one notification over HTTP: signed, with time-outs, and never to another host."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import unquote, urlsplit, urlunsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from celery_catchup.config.receivers import Receiver
from celery_catchup.errors import CatchupError
from celery_catchup.notifications.messages import shaped

TIME_OUT = 5.0
"""Seconds to connect, and to wait for each part of the answer."""
ID_HEADER, TIME_HEADER, SIGNATURE_HEADER = "X-Catchup-Id", "X-Catchup-Timestamp", "X-Catchup-Signature"


class DeliveryError(CatchupError):
    """A receiver did not accept a notification; the message has neither its URL nor its secret."""


class _NoRedirects(HTTPRedirectHandler):
    """Follows no redirect: the notification could go to another host."""

    def redirect_request(self, *_: Any) -> None:
        return None


_opener = build_opener(_NoRedirects)


def sign(secret: str, timestamp: str, body: bytes) -> str:
    """Return the signature: HMAC-SHA256 of the timestamp, a dot and the body."""
    found = hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    return f"sha256={found}"


def deliver(
    receiver: Receiver, payload: Mapping[str, Any], *, timestamp: int, time_out: float = TIME_OUT
) -> None:
    """Send a payload; raise `DeliveryError` unless the receiver answers with 2xx. ``timestamp`` is the
    present in seconds, which the receiver compares with its own clock."""
    body = json.dumps(shaped(payload, receiver.format), ensure_ascii=False).encode()
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "celery-catchup",
        ID_HEADER: str(payload["id"]),
        TIME_HEADER: str(timestamp),
    }
    if receiver.secret is not None:
        headers[SIGNATURE_HEADER] = sign(receiver.secret, str(timestamp), body)
    url, login = _without_login(receiver.url)
    if login is not None:
        headers["Authorization"] = login
    request = Request(url, data=body, headers=headers, method="POST")
    try:
        with _opener.open(request, timeout=time_out) as answer:
            status = answer.status
    except HTTPError as error:
        error.close()
        raise DeliveryError(_refusal(error.code)) from None
    except TimeoutError:
        raise DeliveryError(f"no answer within {time_out:g} s") from None
    except (OSError, HTTPException, ValueError) as error:
        raise DeliveryError(_reason(error)) from None
    if not 200 <= status < 300:
        raise DeliveryError(_refusal(status))


def _refusal(status: int) -> str:
    if 300 <= status < 400:
        return f"it answered {status}, a redirect, which is not followed; configure the final URL"
    return f"it answered {status}"


def _reason(error: Exception) -> str:
    """Describe a failure without its text, which may have the URL: only the words of the system."""
    cause = getattr(error, "reason", error)
    if isinstance(cause, TimeoutError):
        return f"no answer within {TIME_OUT:g} s"
    words = getattr(cause, "strerror", None)
    return f"{type(cause).__name__}: {words}" if words else type(cause).__name__


def _without_login(url: str) -> tuple[str, str | None]:
    """Split user and password off a URL; they go into a header."""
    parts = urlsplit(url)
    login, at, host = parts.netloc.rpartition("@")
    if not at:
        return url, None
    user, _, password = login.partition(":")
    encoded = base64.b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode()
    return urlunsplit(parts._replace(netloc=host)), f"Basic {encoded}"
