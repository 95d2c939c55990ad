"""How fast, and in how much memory: ``python -m benchmarks`` runs all of them and checks their bars."""
