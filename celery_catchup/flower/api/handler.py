"""Request handlers of the HTTP API: authenticate, parse, call one operation in a thread, write JSON.

A change needs all of these:

- Flower has authentication, and is not read-only.
- The request is not cross-site. Browsers mark such requests (``Sec-Fetch-Site``, ``Origin``), including
  those with credentials that the browser adds by itself.
- The request has something that a page of another site cannot send: Tornado's XSRF token, or the header
  ``X-Requested-With``, for which a browser first sends a preflight request. That is never allowed.

DNS rebinding changes nothing: browsers store passwords and cookies by host name, so such a request has
no credentials. Without authentication it can read, as everyone can.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlsplit

from tornado.web import HTTPError, RequestHandler

from celery_catchup.errors import CatchupError
from celery_catchup.flower import host
from celery_catchup.flower.api.endpoint import Endpoint
from celery_catchup.flower.api.errors import ApiError, Error, api_error, error_details
from celery_catchup.flower.handler import CatchupHandler
from celery_catchup.operations import Operator, as_json

LONGEST_BODY = 1024 * 1024
"""Bytes of a request's body."""

SCRIPT_HEADER = "X-Requested-With"
"""A header that forms of other sites cannot send; its value does not matter."""

_FlowerApiHandler: Any = host.api_handler()


class ApiHandler(CatchupHandler, _FlowerApiHandler):  # type: ignore[misc]
    """A handler that requires Flower's authentication and writes JSON, also for errors."""

    allowed: tuple[str, ...] = ("GET",)

    def prepare(self) -> None:
        """Reject requests without authentication."""
        super().prepare()
        if not self.current_user:
            raise ApiError(401, "Authentication is required to use the API.")

    def finish_json(self, text: bytes) -> None:
        """Write what `encode` returned."""
        self.set_header("Content-Type", "application/json; charset=utf-8")
        self.finish(text)

    def write_error(self, status_code: int, **given: Any) -> None:
        """Write the error as JSON; an unexpected one without its details."""
        error = given.get("exc_info", (None, None))[1]
        self.set_status(status_code)
        if status_code == 401 and host.has_basic_auth(self.application):
            self.set_header("WWW-Authenticate", 'Basic realm="flower"')
        if status_code == 405:
            self.set_header("Allow", ", ".join((*self.allowed, "OPTIONS")))
        self.finish_json(encode(Error(error_details(error, self._reason))))

    def check_change(self) -> None:
        """Reject a change with 403 and the reason."""
        reason = self.why_read_only or _cross_site(self.request)
        if reason is None and SCRIPT_HEADER not in self.request.headers:
            reason = self._without_token()
        if reason is not None:
            raise ApiError(403, reason)

    def _without_token(self) -> str | None:
        try:
            RequestHandler.check_xsrf_cookie(self)
        except HTTPError:
            return (
                "The request has no XSRF token; send the cookie _xsrf and the header X-XSRFToken, "
                f"or the header {SCRIPT_HEADER}."
            )
        return None


class EndpointHandler(ApiHandler):
    """The methods of one path."""

    def initialize(self, *, endpoints: dict[str, Endpoint]) -> None:
        """Store the endpoints by method."""
        self._endpoints, self.allowed = endpoints, tuple(endpoints)

    async def get(self, *path: str) -> None:
        """Serve a GET."""
        await self._serve(path)

    async def post(self, *path: str) -> None:
        """Serve a POST."""
        await self._serve(path)

    async def _serve(self, path: tuple[str, ...]) -> None:
        endpoint = self._endpoints.get(self.request.method)
        if endpoint is None:
            raise HTTPError(405)
        if endpoint.changes:
            self.check_change()
        if endpoint.has_body:
            self._check_body()
        zone = host.celery_app(self.application).timezone
        request = endpoint.parse(path, self._query(), self.request.body, now=Operator.clock.now(), zone=zone)
        try:
            text = await self.with_operator(lambda operator: encode(endpoint.operation(operator, request)))
        except CatchupError as error:
            raise api_error(error) from None
        self.finish_json(text)

    def _query(self) -> dict[str, list[str]]:
        """Decode the query; Flower's own methods would escape it."""
        try:
            return {
                name: [value.decode() for value in values]
                for name, values in self.request.query_arguments.items()
            }
        except UnicodeDecodeError:
            raise ApiError(400, "expected a query in UTF-8") from None

    def _check_body(self) -> None:
        if len(self.request.body) > LONGEST_BODY:
            raise ApiError(413, f"the body is longer than {LONGEST_BODY} bytes; split the request")
        kind = self.request.headers.get("Content-Type", "application/json").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise ApiError(415, "expected JSON; send it with Content-Type: application/json")


class NotFoundHandler(ApiHandler):
    """Every other path below the API's root."""

    allowed = ()

    def get(self) -> None:
        """Answer 404."""
        raise ApiError(404, "No such endpoint; /api/catchup/openapi.json lists them.")

    post = put = patch = delete = head = get


def encode(value: object) -> bytes:
    """Encode a value as JSON that can also be embedded in a script element."""
    text = json.dumps(as_json(value), ensure_ascii=False).replace("</", "<\\/")
    return text.encode(errors="backslashreplace")  # lone surrogates as JSON escapes


def _cross_site(request: Any) -> str | None:
    site, origin = request.headers.get("Sec-Fetch-Site"), request.headers.get("Origin")
    if site not in (None, "same-origin"):
        return "The request comes from another site."
    if origin is not None and urlsplit(origin).netloc != request.host:
        return "The request comes from another origin."
    return None
