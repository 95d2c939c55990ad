"""Planted bugs: each takes one guard away, and the oracle has to notice."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any

from kombu.exceptions import OperationalError
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError
from redis.retry import Retry

from celery_catchup.engine import Reaper, advance, deadlines, reaper, tracked_entries
from celery_catchup.planning import planner, scope
from celery_catchup.store import DeadlineRecords, Evidence, leadership, ledger, opening
from celery_catchup.store.store import Script
from celery_catchup.worker_plugin import deliveries, heartbeat, worker_process
from tests.simulation.shims import replaced

Change = tuple[Any, str, Any]


@dataclass(frozen=True)
class Mutant:
    """A guard that is missing: in the text of scripts, or in functions of the package."""

    why: str
    texts: tuple[tuple[str, str, str], ...] = ()
    """``(script, or "" for all that have it; pattern; what stands there instead)``"""
    changes: Callable[[Any], list[Change]] | None = None
    stress: str = ""
    """A misfortune that shows it: the short form has more of that."""

    def scripts(self, shipped: Mapping[str, Script]) -> dict[str, Script]:
        found = dict(shipped)
        for wanted, pattern, instead in self.texts:
            hit = 0
            for name, script in found.items():
                text, count = re.subn(pattern, instead, script.text)
                if count and wanted in ("", name):
                    hit += count
                    found[name] = replace(script, text=text)
            assert hit, f"no script has {pattern!r} any more; mend the mutant"
        return found

    @contextmanager
    def planted(self, world: Any) -> Iterator[None]:
        with replaced([] if self.changes is None else self.changes(world)):
            yield


# -- guards in Python ------------------------------------------------------------------------


def _nobody_reaps(_: Any) -> list[Change]:
    return [(Reaper, "reap", lambda self, *_, **__: None)]


def _version_is_ignored(_: Any) -> list[Change]:
    lead = leadership.Leadership.lead
    return [(leadership.Leadership, "lead", lambda self, **asked: replace(lead(self, **asked), version=0))]


def _watermark_passes_everything(_: Any) -> list[Change]:
    return [(tracked_entries.TrackedEntries, "settled", lambda self, now: True)]


def _loss_is_not_noticed(_: Any) -> list[Change]:
    return [(leadership.Leadership, "_went_back", lambda self, record, *, renewed: False)]


def _window_is_an_hour_longer(_: Any) -> list[Change]:
    reach = scope._reach

    def mutated(entry: Any, index: int, floor: int, now: int) -> Any:
        found, window = reach(entry, index, floor, now), entry.bounds[index].window
        longer = found.after if window is None else max(found.floor, now - window - 3_600_000)
        return replace(found, after=min(found.after, longer))

    return [(scope, "_reach", mutated)]


def _nothing_is_held(_: Any) -> list[Change]:
    return [(advance, "find_held", lambda *_, **__: {})]


def _exclusions_are_ignored(_: Any) -> list[Change]:
    return [(scope, "_excluded", lambda *_: ())]


def _covered_slots_are_not_recorded(_: Any) -> list[Change]:
    return [(planner._Planning, "_settle_spans", lambda self, running: None)]


def _deadlines_are_not_judged(_: Any) -> list[Change]:
    return [(deadlines.Deadlines, "step", lambda self, now: None)]


def _everything_is_news(_: Any) -> list[Change]:
    return [(deadlines.Deadlines, "_note", lambda self, change: True)]


def _judgements_unanswered(_: Any) -> list[Change]:
    """The misfortune that the guard is for: every other answer with news is lost."""
    judge, turns = DeadlineRecords.judge, cycle((True, False))

    def mutated(self: Any, *args: Any, **options: Any) -> Any:
        news = judge(self, *args, **options)
        if news and next(turns):
            raise ConnectionError("simulated: the answer was lost")
        return news

    return [(DeadlineRecords, "judge", mutated)]


def _no_heartbeat(_: Any) -> list[Change]:
    return [(heartbeat.Heartbeat, "_renew", lambda self, held: None)]


def _watermark_first(world: Any) -> list[Change]:
    """As stock beat does it: note first that it was done, then do it."""
    start = ledger.Ledger.start_commit

    def mutated(self: Any, leading: Any, batch: Any, *, now: int) -> Any:
        for one in batch.entries:
            self._client.hset(self._keys.decided, one.name, str(one.decided))
        noted = [replace(one, expected=one.decided) for one in batch.entries]
        return start(self, leading, replace(batch, entries=noted), now=now)

    return [(ledger.Ledger, "start_commit", mutated)]


def _any_standby_takes_over(_: Any) -> list[Change]:
    lead = leadership.Leadership.lead

    def mutated(self: Any, **asked: Any) -> Any:
        self._length = 0
        return lead(self, **asked)

    return [(leadership.Leadership, "lead", mutated)]


def _judging(judge: Callable[[Any, Any, Evidence], Evidence]) -> Callable[[Any], list[Change]]:
    """Another opinion about runs that nobody claimed: ``judge(run, queue, evidence as shipped)``."""
    shipped = reaper.evidence_of

    def mutated(run: Any, queue: Any, *, now: int) -> Evidence:
        return judge(run, queue, shipped(run, queue, now=now))

    return lambda _: [(reaper, "evidence_of", mutated)]


def _mixed_fleet_is_not_seen(_: Any) -> list[Change]:
    shipped = reaper.evidence_of
    blind = {"evidence_of": lambda run, queue, *, now: shipped(run, replace(queue, plain_now=False), now=now)}
    return [(reaper, name, value) for name, value in blind.items()]


def _long_ticks_are_not_renewed(_: Any) -> list[Change]:
    return [(leadership.Leadership, "_renew_in_time", lambda self: False)]


def _every_task_is_the_runs_own(_: Any) -> list[Change]:
    return [(deliveries, "is_message_of", lambda run_id, task_id: True)]


def _revoke_active(world: Any, self: Any, batch: Any) -> None:
    """Tell workers to end what is active of entries whose new run is to replace it."""
    for one in batch.entries:
        active = self.active(one.name) if one.more is not None and one.more.ends else []
        if active:
            with suppress(OperationalError):
                world.control.revoke(active, terminate=True)


def _revoked_before_commit(world: Any) -> list[Change]:
    """A commit whose answer is lost is repeated, and ends the very run that it has made."""
    start = ledger.Ledger.start_commit

    def mutated(self: Any, leading: Any, batch: Any, *, now: int) -> Any:
        _revoke_active(world, self, batch)
        return start(self, leading, batch, now=now)

    return [(ledger.Ledger, "start_commit", mutated)]


def _revoked_unfenced(world: Any) -> list[Change]:
    """A leader that was frozen ends the runs of its successor, although its commit is refused."""
    result = ledger.StartedCommit.result

    def mutated(self: Any) -> Any:
        try:
            return result(self)
        except (leadership.FencedError, ledger.StaleWatermarkError):
            _revoke_active(world, self._ledger, self._batch)
            raise

    return [(ledger.StartedCommit, "result", mutated)]


def _received_is_not_renewed(_: Any) -> list[Change]:
    return [(worker_process, "_received", list)]


class Repetitions(NoBackoff):
    """Counts how often a client repeats a command."""

    count = 0

    def __deepcopy__(self, _: Any) -> Repetitions:
        return self  # every connection gets a copy, and all of them are counted here

    def compute(self, failures: int) -> float:
        self.count += 1
        return super().compute(failures)


def client_that_repeats(repetitions: Repetitions) -> Mutant:
    """redis-py's own default: a command whose answer is lost is sent again."""

    def changes(_: Any) -> list[Change]:
        simulated = opening.connect

        def repeating(url: str, **options: Any) -> Any:
            client = simulated(url, **options)
            client.set_retry(Retry(repetitions, 3))
            return client

        return [(opening, "connect", repeating)]

    return Mutant("the client repeats commands", changes=changes)


_ENDED = r"if run\.state ~= 'queued' and run\.state ~= 'running' then return \{ 'ended', run\.state \} end"

_COUNTED = """if evidence == 'lost' then
    run.losses = (run.losses or 0) + 1
    if run.losses > 3 then return give_up('dead', 'dead') end
    store_run(id, run)
    redis.call('ZADD', keys.leases, now + patience(run.losses), id)
    return 'alive'
  elseif evidence == 'never' then"""

MUTANTS: dict[str, Mutant] = {
    "no_fence": Mutant(
        "whoever once led may write",
        (("", r"return record\[1\] == args\.owner and record\[2\] == args\.epoch", "return true"),),
        stress="leader_frozen",
    ),
    "counter_only_fence": Mutant(
        "the number alone fences, as if no fail-over forgot it",
        (
            (
                "",
                r"return record\[1\] == args\.owner and record\[2\] == args\.epoch",
                "return record[2] == args.epoch",
            ),
        ),
        stress="forgetful_failover",
    ),
    "no_compare_and_set": Mutant(
        "decisions are written wherever the entry's watermark is by now",
        (("commit", r"if \(known or ''\) ~= entries\.expected\[i\] then", "if false then"),),
        stress="commit_unanswered",
    ),
    "no_compare_and_set_plain": Mutant(
        "entries without a policy are sent whatever is known of them by now",
        (("commit", r"if \(known or ''\) ~= batch\.unmanaged\.expected\[i\] then", "if false then"),),
        stress="commit_unanswered",
    ),
    "no_ledger_check": Mutant(
        "a run that exists is made again",
        (
            ("commit", r"redis\.call\('HEXISTS', keys\.ledger, id\) == 1", "false"),
            ("commit", r" or known > 0\)", ")"),
        ),
        stress="leader_ahead",
    ),
    "no_lease_check": Mutant(
        "a run that is executed can be claimed by another", (("claim", r"expiry > now", "false"),)
    ),
    "ended_runs_claimed": Mutant("a run that has ended can be claimed", (("claim", _ENDED, ""),)),
    "waiting_runs_claimed": Mutant(
        "a copy of an earlier message starts a run that waits for its turn",
        (("claim", r"if run\.state == 'waiting' then return \{ 'held' \} end", ""), ("claim", _ENDED, "")),
    ),
    "lost_lease_finishes": Mutant(
        "what a worker reports that lost its run counts",
        (("finish", r"if owner ~= '' and run\.owner ~= owner then return \{ 'superseded' \} end", ""),),
        stress="worker_frozen",
    ),
    "gate_off": Mutant(
        "a chain lets all of its runs start",
        (
            ("", r"local room = capacity < 0 and [^\n]*", "local room = math.huge"),
            ("commit", r"\(capacity < 0 or active < capacity\)", "true"),
        ),
    ),
    "no_release": Mutant(
        "the end of a run does not release the next one",
        (("finish", r"\nrelease\(policy\.capacity, now\)", ""),),
    ),
    "ledger_forgets": Mutant(
        "what has ended is thrown away, as by a TTL or an evicting server",
        (("finish", r"\nrelease\(policy", "\nredis.call('HDEL', keys.ledger, id)\nrelease(policy"),),
    ),
    "no_reaper": Mutant(
        "lost runs are nobody's business",
        changes=_nobody_reaps,
        stress="kill_a_worker",
    ),
    "watermark_first": Mutant(
        "the watermark moves before the run is recorded",
        changes=_watermark_first,
        stress="set_a_trap",
    ),
    "watermark_passes": Mutant(
        "the scheduler's watermark passes undecided slots",
        changes=_watermark_passes_everything,
        stress="all_beats_away",
    ),
    "stale_cache": Mutant(
        "changes from outside are not looked at",
        changes=_version_is_ignored,
        stress="somebody_acts",
    ),
    "window_too_long": Mutant(
        "the window is one slot too long",
        changes=_window_is_an_hour_longer,
        stress="all_beats_away",
    ),
    "no_heartbeat": Mutant("nobody renews the lease of a long run", changes=_no_heartbeat),
    "stolen_lead": Mutant("a standby takes over from a living leader", changes=_any_standby_takes_over),
    "silent_loss": Mutant(
        "a server that forgot is taken for a healthy one",
        changes=_loss_is_not_noticed,
        stress="forgetful_failover",
    ),
    # -- a delay is not a loss -----------------------------------------------------------------
    "delay_is_loss": Mutant(
        "a run that nobody has claimed for a while is sent again",
        changes=_judging(lambda run, queue, found: found or Evidence.LOST),
        stress="slow_times",
    ),
    "delay_is_death": Mutant(
        "a run that nobody has claimed for long is given up",
        (("recover", r"if evidence == 'lost' then", _COUNTED),),
        changes=_judging(lambda run, queue, found: found or Evidence.LOST),
        stress="workers_stopped",
    ),
    "stopped_workers_ran_it": Mutant(
        "what is queued while all workers are stopped is taken to have run",
        changes=_judging(lambda run, queue, found: found if queue.claims_now else Evidence.ASSUMED),
        stress="workers_stopped",
    ),
    "absent_workers_ran_it": Mutant(
        "what is queued before the first worker starts is taken to have run",
        changes=_judging(lambda run, queue, found: found if queue.ever_claimed else Evidence.ASSUMED),
        stress="late_workers",
    ),
    "assumed_run_overlaps": Mutant(
        "a run that was wrongly assumed to have run starts beside its successor",
        (("claim", r"if run\.unreported and not unsent then [^\n]*", ""),),
        stress="strangers_first",
    ),
    "mixed_fleet_resent": Mutant(
        "what a worker without the plugin has executed is sent again",
        changes=_mixed_fleet_is_not_seen,
        stress="stranger_joins",
    ),
    "received_not_renewed": Mutant(
        "workers do not say which messages wait inside them",
        changes=_received_is_not_renewed,
        stress="rate_limited",
    ),
    "expired_resent": Mutant(
        "an expired run is sent again",
        changes=_judging(lambda run, queue, found: Evidence.LOST if found is Evidence.EXPIRED else found),
        stress="workers_stopped",
    ),
    "reaped_after_outage": Mutant(
        "whoever finds the server again takes runs over before their workers could renew",
        (("", r"return not since or now - since >= ttl", "return true"),),
        stress="server_away_for_long",
    ),
    "long_tick_not_renewed": Mutant(
        "a leader does not renew its lease while its tick takes long",
        changes=_long_ticks_are_not_renewed,
        stress="slow_confirms",
    ),
    "revoked_before_commit": Mutant(
        "what a new run replaces is revoked before the new run is recorded",
        changes=_revoked_before_commit,
        stress="commit_unanswered",
    ),
    "revoked_unfenced": Mutant(
        "a leader that leads no more revokes",
        changes=_revoked_unfenced,
        stress="frozen_before_replacing",
    ),
    "revoked_by_run_id": Mutant(
        "later attempts are revoked under the id of the first",
        (
            ("commit", r"revocations, task_id\(id, attempt\), kind", "revocations, id, kind"),
            ("commit", r"if run\.task_id then redis\.call\('HSET', keys\.revocations[^\n]*", ""),
        ),
        stress="kill_a_worker",
    ),
    "borrowed_headers_dropped": Mutant(
        "a task that was given a run's headers is dropped",
        (("claim", r"return \{ 'foreign' \}", "return { 'held' }"),),
        changes=_every_task_is_the_runs_own,
    ),
    "no_limit_of_active_runs": Mutant(
        "places are not counted: any number of catch-up runs is active",
        (("", r"if free_places\(\) <= 0 then return false end", ""),),
        stress="all_beats_away",
    ),
    "waiting_lane_forgotten": Mutant(
        "a lane that finds no place among the active catch-up runs is not noted",
        (("", r"redis\.call\('ZADD', keys\.catchup_waiting[^\n]*", ""),),
        stress="all_beats_away",
    ),
    "nothing_is_held": Mutant(
        "a catch-up of any size starts without an approval",
        changes=_nothing_is_held,
        stress="all_beats_away",
    ),
    "hold_forgets_slots": Mutant(
        "the watermark of a held entry does not stay",
        (("hold_entries", r"decided = before[^,]*", "decided = tonumber(args.now_ms)"),),
        stress="all_beats_away",
    ),
    "exclusions_ignored": Mutant(
        "excluded slots run",
        changes=_exclusions_are_ignored,
    ),
    "covered_unrecorded": Mutant(
        "slots that a span covers are not recorded",
        changes=_covered_slots_are_not_recorded,
        stress="all_beats_away",
    ),
    "overdue_repeated": Mutant(
        "a slot that is known to be overdue is reported again",
        (("judge_slots", r"told = judges and 'overdue'", "told = 'overdue'"),),
        changes=_everything_is_news,
        stress="all_beats_away",
    ),
    "recovery_unsaid": Mutant(
        "a slot that was overdue stays so when its run succeeds",
        (("judge_slots", r"elseif redis.call\('ZREM', keys.overdue, [^\n]*", "elseif false then"),),
        stress="all_beats_away",
    ),
    "overdue_answer_lost": Mutant(
        "a slot whose judgement got no answer is not reported",
        (("judge_slots", r"told = judges and", "told = not redis.call('ZSCORE', keys.overdue, one[4]) and"),),
        changes=_judgements_unanswered,
        stress="workers_stopped",
    ),
    "overdue_unsaid": Mutant(
        "no slot is ever overdue",
        changes=_deadlines_are_not_judged,
        stress="workers_stopped",
    ),
}
