"""Who may change something, and which requests are somebody else's trick.

A change needs all of these:

- authentication is on in Flower, and Flower is not read-only;
- the request is not another site's: browsers tell (``Sec-Fetch-Site``, ``Origin``), also for a
  password that they send along by themselves;
- it carries what another site's page cannot send: Tornado's XSRF token, or the header
  ``X-Requested-With``, for which a browser would first have to ask us, and we never agree.

A name that an attacker lets point to this host (DNS rebinding) changes nothing: passwords and cookies
are kept by name, so that the request comes without them. Without authentication it may look, as
anybody may.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from tornado.web import HTTPError, RequestHandler

from celery_catchup.flower import host
from celery_catchup.flower.failures import FailedError

SIGN = "X-Requested-With"
"""A header that forms of other sites cannot send; its value does not matter."""

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
    # Flower's own pages style themselves in their markup; no script does.
    "Content-Security-Policy": (
        "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; object-src 'none'; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
}
"""On every answer of ours."""


def why_not(application: Any) -> str | None:
    """Why nothing can be changed in this Flower, as a sentence; None when something can."""
    if host.is_read_only(application):
        return "Flower is read-only; start it without --read-only to change something."
    if not host.auth_is_on(application):
        return "Flower asks nobody who he is; start it with --basic-auth or --auth to change something."
    return None


def check_change(handler: Any) -> None:
    """403, with the reason, for a request that must change nothing."""
    reason = why_not(handler.application) or _trick(handler.request)
    if reason is None and SIGN not in handler.request.headers:
        reason = _without_token(handler)
    if reason is not None:
        raise FailedError(403, reason)


def _trick(request: Any) -> str | None:
    site, origin = request.headers.get("Sec-Fetch-Site"), request.headers.get("Origin")
    if site not in (None, "same-origin"):
        return "The request comes from another site."
    if origin is not None and urlsplit(origin).netloc != request.host:
        return "The request comes from another origin."
    return None


def _without_token(handler: Any) -> str | None:
    try:
        RequestHandler.check_xsrf_cookie(handler)
    except HTTPError:
        return f"The request has no XSRF token; send the cookie _xsrf and the header X-XSRFToken, or {SIGN}."
    return None
