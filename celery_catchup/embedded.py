"""The path of version 0.1 to `celery_catchup.testing.EmbeddedServer`."""

from celery_catchup.testing.embedded_server import EmbeddedServer

__all__ = ["EmbeddedServer"]
