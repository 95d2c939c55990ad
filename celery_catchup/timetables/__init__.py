"""Timetables: when does a schedule fire? Cron parser and tables, intervals, time zones.

Pure: no clock, no I/O. May import the model and the errors only. Start reading in `timetable.py`, the
interface; daylight saving is in `cron_table.py`.
"""
