"""The HTTP API under ``/api/catchup/v1``: the operations as JSON, and a stream of changes.

It may import `operations` and what is below, and Flower through `host`. Start reading at
`read_endpoints` and `write_endpoints`; `endpoint` explains how a function becomes an endpoint, and has the
conventions. `old_paths` has the paths of version 0.1.
"""

from __future__ import annotations

from typing import Any

from celery_catchup.flower.api import read_endpoints, write_endpoints
from celery_catchup.flower.api.endpoint import ENDPOINTS, ROOT
from celery_catchup.flower.api.handler import ApiHandler
from celery_catchup.flower.api.old_paths import OLD_ROOT, old_endpoints
from celery_catchup.flower.api.openapi import DocumentHandler, document

__all__ = ["ENDPOINTS", "ROUTES", "document", "read_endpoints", "write_endpoints"]

ROUTES: list[tuple[Any, ...]] = [
    (f"(?:{ROOT}|{OLD_ROOT})/openapi\\.json", DocumentHandler, {"root": ROOT, "endpoints": ()}),
    (f"{ROOT}(?:/.*)?", ApiHandler, {"root": ROOT, "endpoints": ENDPOINTS}),
    (f"{OLD_ROOT}(?:/.*)?", ApiHandler, {"root": OLD_ROOT, "endpoints": old_endpoints()}),
]
