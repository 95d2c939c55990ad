"""Decide what happens to each slot of a range.

Live ticks, catch-up, resume, preview and backfill share one planner.

Pure: no clock, no I/O. May import config and timetables. Start reading in `planner.py`. `scope.py` has the
range that is planned.
"""
