"""One trial: a subject does an action, as the JSON says; the last line of the output is the result."""

from __future__ import annotations

import cProfile
import json
import os
import sys
from importlib import import_module
from pathlib import Path


def main(subject: str, action: str, spec: str) -> None:
    work = getattr(import_module(f"benchmarks.subjects.{subject}"), action)
    folder = os.environ.get("BENCHMARK_PROFILE")
    if folder:
        profile = cProfile.Profile()
        result = profile.runcall(work, **json.loads(spec))
        profile.dump_stats(Path(folder) / f"{subject}-{action}-{os.getpid()}.prof")
    else:
        result = work(**json.loads(spec))
    print(json.dumps(result), flush=True)
    os._exit(0)  # what schedulers do at exit is not measured, and takes some of them minutes


if __name__ == "__main__":
    main(*sys.argv[1:])
