"""The worker's side: claim a run before its task, renew its lease meanwhile, report the outcome.

`celery_catchup.worker` installs it. May import dispatch, store, events and what is below them. Start
reading in `installation.py`; the claim is in `claims.py`, the report in `outcomes.py`.
"""
