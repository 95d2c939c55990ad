"""The page about the HTTP API says what the endpoints are."""

from __future__ import annotations

import re
from pathlib import Path

from celery_catchup.flower.api import ENDPOINTS
from docs import http_api

PAGE = Path(http_api.PAGE).read_text(encoding="utf-8")


def test_the_page_is_up_to_date() -> None:
    assert http_api.http_api_page() == PAGE, "run: python docs/generate.py"


def test_every_endpoint_has_its_section_and_every_link_its_target() -> None:
    headings = {
        line.strip("# ").lower().replace(" ", "-") for line in PAGE.splitlines() if line.startswith("###")
    }

    for endpoint in ENDPOINTS:
        assert endpoint.name.lower() in headings
    assert set(re.findall(r"\(#([\w-]+)\)", PAGE)) <= headings
