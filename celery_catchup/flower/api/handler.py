"""The request handler of the HTTP API: authenticate, parse, call one operation in a thread, write JSON.

Everything that grows with a request or a response happens in the thread: decoding, parsing, the operation,
encoding and compressing. The event loop only moves bytes.

Browsers mark requests that a page of another site or port sends (``Sec-Fetch-Site``, ``Origin``), including
those with credentials that the browser adds by itself; they are refused. A change needs all of these, too:

- Flower has authentication, and is not read-only. A dry run changes nothing and needs neither.
- The request has something that a page of another site cannot send: Tornado's XSRF token, or the header
  ``X-Requested-With``, for which a browser first sends a preflight request. That is never allowed.

DNS rebinding changes nothing: browsers store passwords and cookies by host name, so such a request has
no credentials. Without authentication it can read, as everyone can.
"""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha1
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tornado.iostream import StreamClosedError
from tornado.web import HTTPError, RequestHandler, stream_request_body

from celery_catchup.error_text import with_visible_controls
from celery_catchup.errors import CatchupError
from celery_catchup.flower import host
from celery_catchup.flower.api.endpoint import Endpoint, SentRequest
from celery_catchup.flower.api.errors import ApiError, ErrorCode, Problem, api_error, problem_of
from celery_catchup.flower.api.old_paths import OLD_ROOT, old_error
from celery_catchup.flower.api.requests import EventsRequest
from celery_catchup.flower.api.responses import Created
from celery_catchup.flower.api.stream import ALIVE_EVERY, Changes, changes
from celery_catchup.flower.handler import CatchupHandler
from celery_catchup.operations import Operator, as_json

LONGEST_BODY = 1024 * 1024
"""Bytes of a request's body."""
SCRIPT_HEADER = "X-Requested-With"
"""A header that forms of other sites cannot send; its value does not matter."""
RETRY_AFTER = 5
"""Seconds after which a client should try again if the server is busy."""
_COMPRESSED_FROM = 1024

_FlowerApiHandler: Any = host.api_handler()


@dataclass(frozen=True)
class EncodedAnswer:
    """A response that is ready to be sent."""

    body: bytes
    etag: str
    compressed: bool
    location: str | None


@stream_request_body  # so that a long body is neither kept nor parsed as a form
class ApiHandler(CatchupHandler, _FlowerApiHandler):  # type: ignore[misc]
    """The endpoints below one root."""

    def initialize(self, *, root: str, endpoints: Sequence[Endpoint]) -> None:
        """Store the endpoints, paths without parameters first."""
        self._root, self._endpoints = root, sorted(endpoints, key=lambda one: bool(one.path_fields))
        self._allowed: list[str] = []
        self._body = b""
        self._etag: str | None = None
        self._changes: Changes | None = None

    def prepare(self) -> None:
        """Read the body before anything is refused: a client that is still sending would miss the answer."""

    async def data_received(self, chunk: bytes) -> None:
        """Keep the body as far as it may be long, and let other requests go on between two parts."""
        if len(self._body) <= LONGEST_BODY:
            self._body += chunk
        await asyncio.sleep(0)

    async def get(self, *_: str) -> None:
        """Serve a GET."""
        await self._serve("GET")

    async def head(self, *_: str) -> None:
        """Serve the headers of a GET."""
        await self._serve("GET")

    async def post(self, *_: str) -> None:
        """Serve a POST."""
        await self._serve("POST")

    async def _serve(self, method: str) -> None:
        self._check_access()
        endpoint, path = self._find(method)
        if endpoint.changes:
            self._check_token()
        if endpoint.has_body:
            self._check_body()
        try:
            if endpoint.streams:
                await self._stream(self._parse(endpoint, path))
                return
            answer = await self.with_operator(
                lambda operator: self._answer(operator, endpoint, path), heavy=endpoint.heavy
            )
        except CatchupError as error:
            raise api_error(error) from None
        if answer.location is not None:
            self.set_status(201)
            self.set_header("Location", answer.location)
        self._send(answer)

    def _answer(self, operator: Operator, endpoint: Endpoint, path: Sequence[str]) -> EncodedAnswer:
        """Parse the request, carry it out and encode the result; this runs in a thread."""
        request = self._parse(endpoint, path)
        dry_run = getattr(request, "dry_run", False)
        if endpoint.changes and not dry_run and (reason := self.why_read_only) is not None:
            raise ApiError(ErrorCode.CHANGES_NOT_ALLOWED, reason)
        result, location = endpoint.operation(operator, request), None
        if isinstance(result, Created):
            location = None if result.path is None else f"{self.url_prefix}{self._root}{result.path}"
            result = result.value
        return self._encoded(encode(result), location)

    def _parse(self, endpoint: Endpoint, path: Sequence[str]) -> Any:
        zone = host.celery_app(self.application).timezone
        sent = SentRequest(path, self._query(), self.request.headers, self._body)
        return endpoint.parse(sent, now=Operator.clock.now(), zone=zone)

    async def _stream(self, request: EventsRequest) -> None:
        """Send the changes until the client has enough, or is gone."""
        loop, left = asyncio.get_running_loop(), request.most
        end = loop.time() + request.seconds
        async with changes(host.celery_app(self.application)) as queue:
            self._changes = queue
            self.set_header("Content-Type", "text/event-stream; charset=utf-8")
            self.set_header("X-Accel-Buffering", "no")
            with suppress(StreamClosedError):
                await self.flush()
                while self.request.method == "GET" and left != 0 and (rest := end - loop.time()) > 0:
                    try:
                        changed = await asyncio.wait_for(queue.get(), min(rest, ALIVE_EVERY))
                    except TimeoutError:
                        self.write(":\n\n")
                    else:
                        if changed is None:
                            return
                        name, left = ("changed", left and left - 1) if changed else ("ready", left)
                        data = json.dumps({"changed": changed})
                        self.write(f"event: {name}\ndata: {data}\n\n")
                    await self.flush()
                self.finish()

    def on_connection_close(self) -> None:
        """End the stream of a client that is gone."""
        if self._changes is not None:
            self._changes.put_nowait(None)

    def _encoded(self, body: bytes, location: str | None = None) -> EncodedAnswer:
        etag = f'"{sha1(body, usedforsecurity=False).hexdigest()}"'
        wanted = "gzip" in self.request.headers.get("Accept-Encoding", "").lower()
        compressed = wanted and len(body) >= _COMPRESSED_FROM
        return EncodedAnswer(gzip.compress(body, 4) if compressed else body, etag, compressed, location)

    def _send(self, answer: EncodedAnswer, kind: str = "application/json; charset=utf-8") -> None:
        self._etag = answer.etag
        self.set_header("Content-Type", kind)
        self.add_header("Vary", "Accept-Encoding")
        if answer.compressed:
            self.set_header("Content-Encoding", "gzip")
        self.finish(answer.body)

    def compute_etag(self) -> str | None:
        """Return the tag that the thread has computed; Tornado compares it and answers 304."""
        return self._etag

    # -- refusals --------------------------------------------------------------------------

    def _check_access(self) -> None:
        super().prepare()  # Flower's rule for an API without authentication
        if not self.current_user:
            raise ApiError(ErrorCode.UNAUTHENTICATED, "Authentication is required to use the API.")
        if (reason := _cross_site(self.request)) is not None:
            raise ApiError(ErrorCode.CROSS_SITE, reason)

    def _find(self, method: str) -> tuple[Endpoint, list[str]]:
        path = self.request.path.removeprefix(self.url_prefix + self._root)
        try:
            found = [(one, values) for one in self._endpoints if (values := one.match(path)) is not None]
        except UnicodeDecodeError:
            raise ApiError(ErrorCode.INVALID_REQUEST, "expected a path in UTF-8") from None
        for endpoint, values in found:
            if endpoint.method == method:
                return endpoint, values
        if found:
            self._allowed = [one.method for one, _ in found]
            raise ApiError(ErrorCode.METHOD_NOT_ALLOWED, f"{method} is not a method of this path.")
        raise ApiError(ErrorCode.NOT_FOUND, f"No such endpoint; {self._root}/openapi.json lists them.")

    def _check_token(self) -> None:
        """Reject a change that a page of another site could have sent."""
        if SCRIPT_HEADER not in self.request.headers:
            try:
                RequestHandler.check_xsrf_cookie(self)
            except HTTPError:
                raise ApiError(
                    ErrorCode.CROSS_SITE,
                    "The request has no XSRF token; send the cookie _xsrf and the header X-XSRFToken, "
                    f"or the header {SCRIPT_HEADER}.",
                ) from None

    def _check_body(self) -> None:
        if len(self._body) > LONGEST_BODY:
            message = f"the body is longer than {LONGEST_BODY} bytes; split the request"
            raise ApiError(ErrorCode.BODY_TOO_LONG, message)
        kind = self.request.headers.get("Content-Type", "application/json").partition(";")[0].strip().lower()
        if kind != "application/json":
            message = "expected JSON; send it with Content-Type: application/json"
            raise ApiError(ErrorCode.NOT_JSON, message)

    def _query(self) -> dict[str, list[str]]:
        """Decode the query; Flower's own methods would escape it."""
        try:
            return parse_qs(self.request.query, keep_blank_values=True, errors="strict")
        except ValueError:
            raise ApiError(ErrorCode.INVALID_REQUEST, "expected a query in UTF-8") from None

    def write_error(self, status_code: int, **given: Any) -> None:
        """Write the error as JSON; an unexpected one without its details."""
        self.set_status(status_code)
        if status_code == 401 and host.has_basic_auth(self.application):
            self.set_header("WWW-Authenticate", 'Basic realm="flower"')
        if status_code == 405:
            self.set_header("Allow", ", ".join(dict.fromkeys([*self._allowed, "HEAD", "OPTIONS"])))
        if status_code == 429:
            self.set_header("Retry-After", str(RETRY_AFTER))
        problem: Problem = problem_of(given.get("exc_info", (None, None))[1], status_code, self._reason)
        if self._root == OLD_ROOT:
            self._send(self._encoded(encode(old_error(problem))))
        else:
            self._send(self._encoded(encode(problem)), "application/problem+json; charset=utf-8")


def encode(value: object) -> bytes:
    """Encode a value as JSON that can also be embedded in a script element, and reads as it is written:
    characters that change the direction of text are escaped."""
    text = json.dumps(as_json(value), ensure_ascii=False).replace("</", "<\\/")
    return with_visible_controls(text).encode(errors="backslashreplace")  # lone surrogates as JSON escapes


def _cross_site(request: Any) -> str | None:
    site, origin = request.headers.get("Sec-Fetch-Site"), request.headers.get("Origin")
    if site not in (None, "same-origin", "none"):
        return "The request comes from another site."
    if origin is not None and urlsplit(origin).netloc != request.host:
        return "The request comes from another origin."
    return None
