"""How much memory a process has, over time."""

from __future__ import annotations

from pathlib import Path
from statistics import mean

MIB = 1024


def resident(pid: int, field: str = "VmRSS") -> float:
    """MiB of a process: now, or the most so far with ``VmHWM``."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / MIB
    raise AssertionError(f"{pid} has no {field}")


def growth(samples: list[float]) -> float:
    """MiB from the second fifth of the samples to the last: what came at the start does not count."""
    fifth = max(len(samples) // 5, 1)
    return mean(samples[-fifth:]) - mean(samples[fifth : 2 * fifth])
