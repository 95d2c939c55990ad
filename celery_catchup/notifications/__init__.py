"""Notifications: what the leader tells the receivers of ``catchup_notify``, and how it is sent.

May import the engine and the rooms below it; beat and the operations use it. Start reading in `notifier.py`,
which turns events into notifications; `sender.py` sends them beside the ticks, by `delivery.py`.
"""
