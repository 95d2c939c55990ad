"""What did the user write? Settings, policies, durations and schedules, with all mistakes at once.

Pure: no clock, no I/O. May import timetables. Start reading in `configuration.py`, which puts the parts
together; a policy's fields are in `policy.py`, app-wide settings in `settings.py`.
"""
