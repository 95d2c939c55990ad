"""Flower with the Catch-up tab: put this beside your project, then ``celery -A proj flower``."""

import os

import celery_catchup.flower  # noqa: F401 — mounts the tab and the HTTP API

# Without one of these the tab shows everything and changes nothing.
basic_auth = [os.environ["FLOWER_USER"]] if "FLOWER_USER" in os.environ else []  # name:password
# auth = r".*@example\.com"
# url_prefix = "flower"
