"""Run the benchmarks, print what they found, and write it into the documentation."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path

from benchmarks.measuring import Findings, Row, bars_table, printed
from benchmarks.page import keep, kept, write
from benchmarks.scales import SCALES
from benchmarks.stage import Stage
from celery_catchup.testing.embedded_server import EmbeddedServer

BENCHMARKS = {
    "slots": "listing and planning slots",
    "mixed": "different tasks and arguments, a restart after an outage, on Redis and RabbitMQ",
    "ticks": "ticks of all schedulers, side by side, and how ours grow",
    "catchup": "after an outage",
    "lateness": "how late live slots are, with a real beat and a real worker",
    "lanes": "live runs beside a backlog of catch-up runs, on Redis and RabbitMQ",
    "chains": "runs that wait for one another, against celery.chain",
    "rabbitmq": "chains and lateness on RabbitMQ",
    "workers": "what the plugin costs",
    "traffic": "round trips and bytes",
    "queries": "preview and listing with a large ledger",
    "stored": "entries created at run time, against declared ones",
    "takeover": "kill -9 of the leader, and a clean stop",
}


def main(arguments: list[str]) -> int:
    """0 whatever the bars say: the verdicts are printed. 1 when something could not be measured; the
    rest is shown and written all the same."""
    options = _parser().parse_args(arguments)
    scale = SCALES["quick" if options.quick else options.scale]
    writes = options.write or not (options.only or options.no_write or scale.name != "full")
    found, begun, failed = Findings(), time.monotonic(), False
    with EmbeddedServer(password="") as server, tempfile.TemporaryDirectory(prefix="benchmarks-") as folder:
        stage = Stage(scale, server, Path(folder))
        for name in options.only or BENCHMARKS:
            print(f"== {name}: {BENCHMARKS[name]}", file=sys.stderr, flush=True)
            stage.clear()
            try:
                part = import_module(f"benchmarks.{name}").measure(stage)
            except (RuntimeError, TimeoutError) as error:
                print(f"{name}: {error}", file=sys.stderr, flush=True)
                part, failed = Findings(bars=[Row.unknown(BENCHMARKS[name], "failed")]), True
            if writes:
                keep(name, part, scale)
            for table in part.tables:
                print(printed(table), flush=True)
            found.extend(part)
        stage.close()
    print(printed(bars_table("Bars", found.bars)))
    print(f"\n{_summary(found)}; {time.monotonic() - begun:.0f} s in all.")
    if writes:
        print(f"Written to {write(kept(BENCHMARKS))}.")
    return int(failed)


def _parser() -> argparse.ArgumentParser:
    listed = "\n".join(f"  {name:9} {what}" for name, what in BENCHMARKS.items())
    parser = argparse.ArgumentParser(
        "python3 run.py bench",
        description=f"{__doc__}\n\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", action="append", choices=BENCHMARKS, help="this one; may be repeated")
    parser.add_argument(
        "--quick", action="store_true", help="smaller, once, without slow peers where they are slow"
    )
    parser.add_argument("--scale", choices=SCALES, default="full", help=argparse.SUPPRESS)
    parser.add_argument(
        "--write",
        action="store_true",
        help="write the page after a partial run too; the other benchmarks keep their figures",
    )
    parser.add_argument("--no-write", action="store_true", help="leave the page as it is")
    return parser


def _summary(found: Findings) -> str:
    verdicts = [row.ok for row in found.bars]
    return (
        f"{verdicts.count(True)} bars met, {verdicts.count(False)} not met, "
        f"{verdicts.count(None)} not measured"
    )


if __name__ == "__main__":
    # An exit instead of a sudden death, so that the server and whoever is being measured end too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(main(sys.argv[1:]))
