"""Keep version 0.1's path to `celery_catchup.testing.EmbeddedServer`."""

from celery_catchup.testing.embedded_server import EmbeddedServer

__all__ = ["EmbeddedServer"]
