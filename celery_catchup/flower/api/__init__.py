"""The HTTP API under ``/api/catchup``: the operations, in the form of the commands' ``-j``."""

from __future__ import annotations

import re
from typing import Any

from celery_catchup.flower.api.changing import CHANGING
from celery_catchup.flower.api.endpoints import ROOT, Endpoint
from celery_catchup.flower.api.handler import EndpointHandler, JsonHandler, NothingHere, encoded
from celery_catchup.flower.api.looking import LOOKING
from celery_catchup.flower.api.openapi import document

__all__ = ["ENDPOINTS", "ROUTES", "document"]

ENDPOINTS: tuple[Endpoint, ...] = (*LOOKING, *CHANGING)


class DocumentHandler(JsonHandler):
    """``openapi.json``."""

    def get(self) -> None:
        """The document of this very server."""
        self.answer(encoded(document(ENDPOINTS, prefix=self.url_prefix)))


def _routes() -> list[tuple[Any, ...]]:
    paths: dict[str, dict[str, Endpoint]] = {}
    for endpoint in ENDPOINTS:
        paths.setdefault(endpoint.path, {})[endpoint.method] = endpoint
    return [
        (ROOT + re.sub(r"\{\w+\}", "([^/]+)", path), EndpointHandler, {"endpoints": methods})
        for path, methods in paths.items()
    ]


ROUTES: list[tuple[Any, ...]] = [
    *_routes(),
    (f"{ROOT}/openapi\\.json", DocumentHandler),
    (f"{ROOT}(?:/.*)?", NothingHere),
]
