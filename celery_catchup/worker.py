"""Importing this module makes a worker claim, report and release runs.

``imports = ["celery_catchup.worker"]`` in the settings is all that it takes.
"""

from __future__ import annotations

from celery_catchup.worker_plugin.installation import install, install_everywhere

__all__ = ["install"]

install_everywhere()
