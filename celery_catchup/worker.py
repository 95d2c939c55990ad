"""Make a worker claim, report and release runs, by importing this module.

``imports = ["celery_catchup.worker"]`` in the settings is enough.
"""

from __future__ import annotations

from celery_catchup.worker_plugin.installation import install, install_everywhere

__all__ = ["install"]

install_everywhere()
