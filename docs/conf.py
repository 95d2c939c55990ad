"""Sphinx: MyST pages, furo, and no warning goes unnoticed (``make docs`` runs with -W)."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from celery_catchup import __version__

project = "celery-catchup"
author = "The celery-catchup contributors"
copyright = author
release = version = __version__

extensions = ["myst_parser", "docs.twins"]
exclude_patterns = ["_build"]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
nitpicky = True

html_theme = "furo"
html_title = f"celery-catchup {release}"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
