"""The story: beat runs, is killed, is away for some seconds, comes back and catches up."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from redis.exceptions import RedisError

from celery_catchup.clock import SystemClock
from celery_catchup.demo.audit import Account, account, slots_due
from celery_catchup.demo.comparison import enough_seen, tally_of_celery, tally_of_ours
from celery_catchup.demo.interrupts import InterruptedDemo, Interrupts
from celery_catchup.demo.narration import Narrator
from celery_catchup.demo.project import ENTRIES, LEASE
from celery_catchup.demo.site import CELERYS, OURS, Site
from celery_catchup.demo.stage import NotInTimeError, Stage
from celery_catchup.demo.tables import comparison_table, in_a_sentence, slot_table, summary
from celery_catchup.errors import CatchupError
from celery_catchup.model import Instant

# Milliseconds of the story, from the instant that slots are counted from.
KILLED_AT = 5_000  # after some slots of each entry, and between two
RESTARTED_AT = 11_500  # beat's start and the lease come on top
_AFTERWARDS = 2_500  # so much ordinary life, at least, is shown after the catch-up
_MARGIN = 300  # after the last slot: the story does not end at the very instant of one


def play(*, compare: bool, keep: bool) -> int:
    """Play the demo; 0 when every slot is accounted for, executed once and in order.

    1 when not, or when a process died; 128 and the signal's number after Ctrl-C and its like. No
    process is left in any case, and no file unless ``keep``.
    """
    narrator = Narrator(SystemClock().monotonic)
    with Interrupts() as interrupts:
        try:
            with _folder(narrator, keep=keep) as folder, ExitStack() as stack:
                return _tell(Stage(narrator, interrupts, stack), folder, compare=compare)
        except InterruptedDemo as end:
            with contextlib.suppress(OSError):  # the terminal may be gone
                narrator.say("Interrupted. All processes of the demo have been ended.")
            return end.exit_code
        except (CatchupError, RedisError) as error:
            narrator.show(f"The demo cannot go on: {error}", good=False)
            return 1


@contextlib.contextmanager
def _folder(narrator: Narrator, *, keep: bool) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="celery-catchup-demo-"))
    try:
        yield folder
    finally:
        if keep:
            with contextlib.suppress(OSError):
                narrator.show(f"The project, its logs and what the tasks wrote are in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


def _tell(stage: Stage, folder: Path, *, compare: bool) -> int:
    """All acts; the exit code."""
    _prepare(stage, folder, compare=compare)
    anchors = _begin(stage)
    zero = max(anchors.values())
    _break_off(stage, zero)
    end = _return(stage, zero)
    _finish(stage, anchors, end)
    accounts = _accounts(stage.sites[0], anchors, end)
    code = _judge(stage.narrator, accounts)
    if compare:
        _compare(stage.narrator, stage.sites[1], accounts)
    return code


# -- the acts ----------------------------------------------------------------------------------


def _prepare(stage: Stage, folder: Path, *, compare: bool) -> None:
    """Servers and projects."""
    stage.narrator.say("A server of the demo's own, a worker with two processes, and three entries:")
    for entry in ENTRIES:
        stage.narrator.show(f"          {entry.name:13}  every {entry.seconds} s, wants {entry.wants}")
    stage.set_up(folder / "catchup", scheduler=OURS)
    if compare:
        stage.narrator.say("Beside them the same project under Celery's own scheduler, on another server.")
        stage.set_up(folder / "celery", scheduler=CELERYS)


def _begin(stage: Stage) -> Mapping[str, Instant]:
    """Worker and beat start; the instants that slots are counted from."""
    stage.narrator.say("Worker and beat start.")
    workers = [site.start_worker() for site in stage.sites]
    _start_beats(stage)
    ours = stage.sites[0]
    names = {entry.name for entry in ENTRIES}
    stage.until(lambda: names <= set(ours.anchors()), what="beat's start", by=ours.beat)
    for worker in workers:
        stage.until(partial(worker.says, " ready."), what="the worker's start", by=worker)
    return ours.anchors()


def _break_off(stage: Stage, zero: Instant) -> None:
    """The outage begins."""
    stage.until_instant(zero + KILLED_AT)
    for site in stage.sites:
        site.kill_beat()
    stage.narrator.say("beat is killed (SIGKILL). The worker lives, and has nothing to do.")


def _return(stage: Stage, zero: Instant) -> Instant:
    """The restart and the catch-up; the end of the story, right after a slot of the first entry."""
    stage.until_instant(zero + RESTARTED_AT)
    stage.narrator.say(f"beat is started again; the dead one's lease has to run out first ({LEASE} s).")
    _start_beats(stage)
    beat = stage.sites[0].beat
    stage.until(partial(beat.says, "Catch-up completed"), what="the catch-up", by=beat)
    stage.narrator.say("Everything missed is decided; new slots come on time again.")
    every = ENTRIES[0].every_ms
    slots = -(-(stage.now() + _AFTERWARDS - zero) // every)
    return zero + slots * every + _MARGIN


def _finish(stage: Stage, anchors: Mapping[str, Instant], end: Instant) -> None:
    """The last slot, and an orderly stop."""
    ours, *others = stage.sites
    stage.until_instant(end)
    with contextlib.suppress(NotInTimeError):  # the audit will say what is missing
        stage.until(
            lambda: all(one.settled for one in _accounts(ours, anchors, end)), what="the end", within=5
        )
    ours.stop()
    stage.watch()
    for site in others:
        _see_the_rest(stage, site, _accounts(ours, anchors, end))
        site.stop()


def _see_the_rest(stage: Stage, site: Site, accounts: list[Account]) -> None:
    """Celery's scheduler counts from its own start: it gets the time for as many slots."""
    stage.narrator.say("Celery's own scheduler gets the time for as many slots.")
    ends = [
        enough_seen(site.executions_of(entry.name), due=len(ours.due), every_ms=entry.every_ms)
        for entry, ours in zip(ENTRIES, accounts, strict=True)
    ]
    stage.until_instant(max(ends) + _MARGIN)


def _judge(narrator: Narrator, accounts: list[Account]) -> int:
    problems = [problem for one in accounts for problem in one.problems()]
    narrator.say("beat and worker are stopped. The ledger, times in UTC:")
    narrator.show(f"\n{slot_table(accounts)}\n")
    narrator.show(summary(accounts), good=not problems)
    for problem in problems:
        narrator.show(f"  {problem}", good=False)
    if problems:
        narrator.show("Play it again with --keep for the logs of beat and worker.")
    else:
        narrator.show("Each run was executed once; those of an entry in slot order, never two at a time.")
    return 1 if problems else 0


def _compare(narrator: Narrator, site: Site, accounts: list[Account]) -> None:
    theirs, ours = tally_of_celery(site, accounts), tally_of_ours(accounts)
    rows = [row for pair in zip(theirs, ours, strict=True) for row in pair]
    narrator.show(f"\nThe same outage under both schedulers:\n\n{comparison_table(rows)}\n")
    narrator.show(in_a_sentence(theirs))


# -- what they share ---------------------------------------------------------------------------


def _start_beats(stage: Stage) -> None:
    for site in stage.sites:
        site.start_beat()


def _accounts(site: Site, anchors: Mapping[str, Instant], end: Instant) -> list[Account]:
    return [
        account(
            entry.name,
            slots_due(anchors[entry.name], end, every_ms=entry.every_ms),
            runs=site.ledger.runs_of(entry.name),
            skips=site.ledger.skips_of(entry.name),
            executions=site.executions_of(entry.name),
        )
        for entry in ENTRIES
    ]
