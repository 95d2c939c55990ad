"""Drawings of slots as inline SVG: values in, markup out; no clock, no store, no script."""
