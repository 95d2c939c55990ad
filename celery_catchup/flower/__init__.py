"""The Catch-up tab in Flower, and the HTTP API: ``import celery_catchup.flower`` in ``flowerconfig.py``.

Importing it mounts both. A Flower that they do not fit goes on without, and says so.
"""

from celery_catchup.flower.installation import install

install()
