"""Run every benchmark of this package that has a ``main``; fail when one of them misses a bar."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path


def main(names: list[str]) -> int:
    """The number of benchmarks that missed a bar; ``names`` picks some of them."""
    here = Path(__file__).parent
    known = sorted(path.stem for path in here.glob("*.py") if not path.stem.startswith("_"))
    if unknown := [name for name in names if name not in known]:
        print(f"no such benchmark: {', '.join(unknown)} (known: {', '.join(known)})", file=sys.stderr)
        return 2
    missed = 0
    for name in names or known:
        run = getattr(import_module(f"benchmarks.{name}"), "main", None)
        if run is not None:
            missed += bool(run())
    return missed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
