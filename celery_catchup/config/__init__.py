"""Parse the user's configuration: settings, policies, durations and schedules; report all mistakes at once.

Pure: no clock, no I/O. May import timetables, the model and the errors. Start reading in
`configuration.py`, which combines the parts; a policy's fields are in `policy.py`, app-wide settings in
`settings.py`.
"""
