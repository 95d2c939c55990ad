"""Entries that are created at run time and kept in Redis: their fields, their validation, the Python API.

May import the store and everything below it, and never Celery's beat, because web processes import this room.
Start reading in `entries.py`, which has the API; `stored_entry.py` has an entry's fields.
"""
