"""What pages and API share of Flower: its sign-in, its prefix, its theme; and the operator."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable
from typing import Any, TypeVar

from tornado.web import authenticated

from celery_catchup import __version__
from celery_catchup.flower import guard, host
from celery_catchup.flower.operators import with_operator
from celery_catchup.operations import Operator

Result = TypeVar("Result")

_CROSS_ORIGIN = (
    "Access-Control-Allow-Origin",
    "Access-Control-Allow-Headers",
    "Access-Control-Allow-Methods",
)

_PageBase: Any = host.page_handler()
_ApiBase: Any = host.api_handler()


class Mounted:
    """A handler inside Flower."""

    application: Any
    request: Any
    current_user: Any

    def secure(self, handler: Any) -> None:
        """Set the headers of an answer; other sites' pages may read none of ours."""
        for name in _CROSS_ORIGIN:
            handler.clear_header(name)
        for name, value in guard.HEADERS.items():
            handler.set_header(name, value)

    async def with_operator(self, function: Callable[[Operator], Result]) -> Result:
        """Call a function with the app's operator, in a thread. It raises a `CatchupError` when something
        is in the way; one that is the store's is a `StoreError`."""
        return await with_operator(host.celery_app(self.application), function, by=self.asked_by)

    @property
    def asked_by(self) -> str:
        """Who asks, for the record."""
        user = self.current_user if isinstance(self.current_user, str) else _basic_user(self.request)
        return f"{user or 'somebody'} in Flower"

    @property
    def url_prefix(self) -> str:
        """What stands before every address: empty, or ``/flower``."""
        return host.url_prefix(self.application)

    @property
    def why_not(self) -> str | None:
        """Why nothing can be changed here, as a sentence; None when something can."""
        return guard.why_not(self.application)

    @property
    def may_change(self) -> bool:
        """Whether something can be changed here."""
        return self.why_not is None


class PageHandler(Mounted, _PageBase):  # type: ignore[misc]
    """A page: for whoever may see Flower's own."""

    version = __version__

    def set_default_headers(self) -> None:
        """Flower's, and ours."""
        super().set_default_headers()
        self.secure(self)

    def prepare(self) -> None:
        """Nothing is shown before the visitor is known, where Flower wants to know him."""
        super().prepare()
        self._enter()

    @authenticated
    def _enter(self) -> None:
        """Come in."""


class ApiHandler(Mounted, _ApiBase):  # type: ignore[misc]
    """A part of the API: for whoever may use Flower's own."""

    def set_default_headers(self) -> None:
        """Flower's, and ours."""
        super().set_default_headers()
        self.secure(self)


def _basic_user(request: Any) -> str | None:
    """The name that somebody signed in with; his password was checked before."""
    kind, _, credentials = request.headers.get("Authorization", "").partition(" ")
    if kind != "Basic":
        return None
    try:
        return b64decode(credentials).decode().partition(":")[0] or None
    except ValueError:
        return None
