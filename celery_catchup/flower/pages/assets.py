"""The tab's style sheet and script, served from the package."""

from __future__ import annotations

from pathlib import Path

from tornado.web import HTTPError

from celery_catchup.flower.mount import PageHandler

_PLACE = Path(__file__).parent.parent / "static"
_KINDS = {"catchup.css": "text/css", "catchup.js": "text/javascript"}


class Asset(PageHandler):
    """One of our two files; the address carries the version, so that a browser may keep it."""

    def get(self, name: str) -> None:
        """The file."""
        if name not in _KINDS:
            raise HTTPError(404)
        self.set_header("Content-Type", f"{_KINDS[name]}; charset=utf-8")
        self.set_header("Cache-Control", "private, max-age=3600")
        self.finish((_PLACE / name).read_bytes())
