"""When does a schedule fire? Cron tables and their parser, intervals, time zones.

Pure: no clock, no I/O. Imports only the model and the errors. Start reading in `timetable.py`, which says
what a timetable can do; daylight saving of cron strings is in `cron_table.py`.
"""
