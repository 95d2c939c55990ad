"""Those who are measured: each in a process of its own, all on the same server.

``python -m benchmarks.subjects SUBJECT ACTION JSON`` does one thing and prints what it measured.
"""
