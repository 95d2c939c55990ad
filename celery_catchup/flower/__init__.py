"""The Catch-up tab in Flower, and the HTTP API: ``import celery_catchup.flower`` in ``flowerconfig.py``.

Importing mounts both; an incompatible Flower starts without them and logs the reason. The room may import
`operations` and what is below. Start reading at `installation`, then `pages/page` or `api/endpoint`.
"""

from celery_catchup.flower.installation import install

install()
