"""Answers requests: reads what is given, calls one operation in a thread, writes JSON."""

from __future__ import annotations

import json
from typing import Any

from tornado.web import HTTPError

from celery_catchup.errors import CatchupError
from celery_catchup.flower import guard, host
from celery_catchup.flower.api.endpoints import Endpoint
from celery_catchup.flower.api.kinds import Present
from celery_catchup.flower.failures import FailedError, Failure, failed
from celery_catchup.flower.mount import ApiHandler
from celery_catchup.operations import Operator, as_json

LONGEST_BODY = 1024 * 1024
"""Bytes of a request's body."""


class JsonHandler(ApiHandler):
    """What every part of the API does: nothing for strangers, and JSON also for what goes wrong."""

    allowed: tuple[str, ...] = ("GET",)

    def prepare(self) -> None:
        """Find out who asks; a stranger is told nothing."""
        super().prepare()
        if not self.current_user:
            raise FailedError(401, "Sign in to use the API.")

    def answer(self, text: bytes) -> None:
        """Write what `encoded` has made."""
        self.set_header("Content-Type", "application/json; charset=utf-8")
        self.finish(text)

    def write_error(self, status_code: int, **given: Any) -> None:
        """Say what went wrong; of what nobody foresaw only that it happened."""
        error = given.get("exc_info", (None, None))[1]
        self.set_status(status_code)
        if status_code == 401 and host.asks_for_a_password(self.application):
            self.set_header("WWW-Authenticate", 'Basic realm="flower"')
        if status_code == 405:
            self.set_header("Allow", ", ".join((*self.allowed, "OPTIONS")))
        self.answer(encoded({"error": _failure(error, self._reason)}))


class EndpointHandler(JsonHandler):
    """The methods of one path."""

    def initialize(self, *, endpoints: dict[str, Endpoint]) -> None:
        """Remember what there is."""
        self._endpoints, self.allowed = endpoints, tuple(endpoints)

    async def get(self, *path: str) -> None:
        """Look."""
        await self._serve(path)

    async def post(self, *path: str) -> None:
        """Change something, or look with a body."""
        await self._serve(path)

    async def _serve(self, path: tuple[str, ...]) -> None:
        endpoint = self._endpoints.get(self.request.method)
        if endpoint is None:
            raise HTTPError(405)
        if endpoint.changes:
            guard.check_change(self)
        if endpoint.body is not None:
            self._check_body()
        given = endpoint.values(path, self._query(), self.request.body, self._present())
        try:
            text = await self.with_operator(lambda operator: encoded(endpoint.operation(operator, given)))
        except CatchupError as error:
            raise failed(error) from None
        self.answer(text)

    def _query(self) -> dict[str, list[str]]:
        """What stands behind the question mark, as it was written."""
        try:
            return {
                name: [value.decode() for value in values]
                for name, values in self.request.query_arguments.items()
            }
        except UnicodeDecodeError:
            raise FailedError(400, "the query is no UTF-8; encode it so") from None

    def _check_body(self) -> None:
        if len(self.request.body) > LONGEST_BODY:
            raise FailedError(413, f"the body is longer than {LONGEST_BODY} bytes; ask for less at once")
        kind = self.request.headers.get("Content-Type", "application/json").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise FailedError(415, "the body is no JSON; send it with Content-Type: application/json")

    def _present(self) -> Present:
        return Present(Operator.clock.now(), host.celery_app(self.application).timezone)


class NothingHere(JsonHandler):
    """Any other address below the API's."""

    allowed = ()

    def get(self) -> None:
        """404."""
        raise FailedError(404, "There is no such part of the API; /api/catchup/openapi.json lists them.")

    post = put = patch = delete = head = get


def encoded(value: object) -> bytes:
    """A value as JSON that stays text wherever somebody puts it, inside a script, too."""
    text = json.dumps(as_json(value), ensure_ascii=False).replace("</", "<\\/")
    return text.encode(errors="backslashreplace")  # half of a surrogate pair is written as JSON has it


def _failure(error: object, reason: str) -> Failure:
    if isinstance(error, FailedError):
        return error.failure
    if isinstance(error, HTTPError) and error.log_message:
        return Failure(error.log_message % error.args if error.args else error.log_message)
    return Failure(reason)
