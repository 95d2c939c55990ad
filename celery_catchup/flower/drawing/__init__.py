"""Drawings of slots as inline SVG, from values alone: no clock, no store, no script.

They may import `markup` and the values of `operations.timeline`. Start reading at `lanes`.
"""
