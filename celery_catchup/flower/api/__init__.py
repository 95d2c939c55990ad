"""The HTTP API under ``/api/catchup``: the operations, in the form of the commands' ``-j``."""

from __future__ import annotations

from typing import Any

ROUTES: list[tuple[Any, ...]] = []
