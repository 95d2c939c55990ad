"""``python -m tests.simulation SEED [LAST] [--mutant NAME]``: play seeds, and show what went wrong."""

from __future__ import annotations

import argparse
import sys
import time

from tests.simulation.world import private_simulator


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("last", type=int, nargs="?")
    parser.add_argument("--mutant", default="")
    parser.add_argument("--trace", type=int, default=60, help="lines of the trace to show")
    parser.add_argument("--stress", default="", help="a misfortune that there is to be more of")
    parser.add_argument("--hunt", action="store_true", help="stop at the first violation")
    parser.add_argument("--forgive", action="append", default=[], help="a rule that is not looked at")
    asked = parser.parse_args()
    mutant = None
    if asked.mutant:
        from tests.simulation.mutants import MUTANTS

        mutant = MUTANTS[asked.mutant]
    begun, bad = time.monotonic(), 0
    with private_simulator() as simulator:
        for seed in range(asked.seed, (asked.last or asked.seed) + 1):
            one = simulator.play(
                seed, mutant=mutant, keep=asked.trace, stress=asked.stress, forgive=asked.forgive
            )
            print(
                f"seed {seed}: {one.violation or 'clean'} "
                f"[{one.digest}, {one.virtual_hours:.0f} virtual hours, {one.executions} executions, "
                f"{one.commands} commands, {one.faults} faults]"
            )
            if one.violation:
                bad += 1
                print("\n".join(one.tail[-asked.trace :]) if asked.trace else "")
                if asked.hunt:
                    break
    count = (asked.last or asked.seed) - asked.seed + 1
    print(f"{count} seeds, {bad} with a violation, {(time.monotonic() - begun) / count:.2f} s each")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
