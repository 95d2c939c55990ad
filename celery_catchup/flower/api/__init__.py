"""The HTTP API under ``/api/catchup``: the operations, in the JSON form of the commands' ``-j``.

It may import `operations` and what is below, and Flower through `host`. Start reading at
`read_endpoints` and `write_endpoints`; `endpoint` explains how a function becomes an endpoint.
"""

from __future__ import annotations

import asyncio
import re
from functools import cache
from typing import Any

from celery_catchup.flower.api import read_endpoints, write_endpoints
from celery_catchup.flower.api.endpoint import ENDPOINTS, ROOT, Endpoint
from celery_catchup.flower.api.handler import ApiHandler, EndpointHandler, NotFoundHandler, encode
from celery_catchup.flower.api.openapi import document

__all__ = ["ENDPOINTS", "ROUTES", "document", "read_endpoints", "write_endpoints"]


class DocumentHandler(ApiHandler):
    """``openapi.json``."""

    async def get(self) -> None:
        """Write the document of this server."""
        self.finish_json(await asyncio.to_thread(_document, self.url_prefix))


@cache  # generating it takes a third of a second
def _document(prefix: str) -> bytes:
    return encode(document(ENDPOINTS, prefix=prefix))


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
    (f"{ROOT}(?:/.*)?", NotFoundHandler),
]
