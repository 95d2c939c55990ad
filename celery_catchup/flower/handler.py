"""The base of all request handlers: security headers, the user's name, and the operator in a thread."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable
from typing import Any, TypeVar

from celery_catchup.flower import host
from celery_catchup.flower.operators import with_operator
from celery_catchup.operations import Operator
from celery_catchup.store import Actor, Origin

Result = TypeVar("Result")

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
    # Flower's own pages have inline styles; no page has inline scripts.
    "Content-Security-Policy": (
        "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; object-src 'none'; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
}
"""Headers of every response of the tab and the API."""

_CROSS_ORIGIN_HEADERS = (
    "Access-Control-Allow-Origin",
    "Access-Control-Allow-Headers",
    "Access-Control-Allow-Methods",
)


class CatchupHandler:
    """A mixin for Flower's page handler and API handler."""

    application: Any
    request: Any
    current_user: Any

    def set_default_headers(self) -> None:
        """Replace Flower's cross-origin headers by ours: pages of other sites may read nothing."""
        handler: Any = self
        super().set_default_headers()  # type: ignore[misc]
        for name in _CROSS_ORIGIN_HEADERS:
            handler.clear_header(name)
        for name, value in HEADERS.items():
            handler.set_header(name, value)

    async def with_operator(self, function: Callable[[Operator], Result], *, heavy: bool = False) -> Result:
        """Call a function with the app's operator, in a thread; few ``heavy`` ones run at once.

        It raises a `CatchupError`; if the store fails, a `StoreError`.
        """
        app = host.celery_app(self.application)
        return await with_operator(app, function, actor=self.actor, heavy=heavy)

    @property
    def actor(self) -> Actor:
        """The user, for the audit trail; the requests of the tab's own script are marked as such."""
        user = self.current_user if isinstance(self.current_user, str) else _basic_user(self.request)
        by_page = self.request.headers.get("X-Requested-With") and self.request.headers.get("Sec-Fetch-Site")
        return Actor(user or "", Origin.FLOWER if by_page else Origin.API)

    @property
    def url_prefix(self) -> str:
        """The path that Flower is served at: empty, or ``/flower``."""
        return host.url_prefix(self.application)

    @property
    def why_read_only(self) -> str | None:
        """Why this Flower accepts no changes, as a sentence; None if it accepts them."""
        if host.is_read_only(self.application):
            return "Flower is read-only; start it without --read-only to make changes."
        if not host.has_auth(self.application):
            return "Flower has no authentication; start it with --basic-auth or --auth to make changes."
        return None


def _basic_user(request: Any) -> str | None:
    """Decode the user's name; Flower has checked the password."""
    kind, _, credentials = request.headers.get("Authorization", "").partition(" ")
    if kind != "Basic":
        return None
    try:
        return b64decode(credentials).decode().partition(":")[0] or None
    except ValueError:
        return None
