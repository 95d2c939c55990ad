"""The worker's side: runs are claimed before they are executed, renewed meanwhile, and reported."""

from celery_catchup.plugin.installation import install

__all__ = ["install"]
