"""How fast, and in how much memory: ``python -m benchmarks`` measures all, and judges the bars."""
