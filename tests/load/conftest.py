"""Fixtures of the load tests: the places of the process-level tests."""

from __future__ import annotations

from tests.acceptance.conftest import nursery, site

__all__ = ["nursery", "site"]
