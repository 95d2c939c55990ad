"""A simulator of the shipped code: seeded clocks, network and processes around the real engine,
scripts and worker plugin. ``python -m tests.simulation 7`` plays the week of seed 7.
"""
