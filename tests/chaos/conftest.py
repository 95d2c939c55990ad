"""Fixtures of the chaos tests: the places of the process-level tests, and what a storm needs."""

from __future__ import annotations

from tests.acceptance.conftest import lasting_server, lasting_site, nursery, rabbit_queue, site

__all__ = ["lasting_server", "lasting_site", "nursery", "rabbit_queue", "site"]
