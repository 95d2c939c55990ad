"""How much is measured: all of it, what fits into a coffee break, or just enough to see that it works."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Sizes and repeats of every benchmark."""

    name: str
    part: int
    """Listing and finding slots is done on such a part of what the full run does."""
    sizes: tuple[int, ...]
    """Numbers of entries for everybody."""
    own_sizes: tuple[int, ...]
    """Further numbers of entries, for ours alone."""
    repeats: int
    patience: float
    """Seconds after which a subject that is still sending is stopped; its rate is known by then."""
    ticks: int
    """Idle ticks of which the median is taken."""
    birds: int
    """Entries that become due one by one."""
    peers_up_to: int
    """The largest number of entries for which the slow peers take part."""
    week: int
    """Missed slots of one entry."""
    many: tuple[int, int]
    """Entries, and the missed slots of each."""
    years: int
    """Missed minutes of an entry that wants only the latest."""
    chains: tuple[int, ...]
    native_chain: int
    due_per_second: int
    seconds: int
    """For how long lateness is watched."""
    tasks: int
    """Messages for one worker."""
    ledger: int
    """Runs in the ledger when it is looked at."""
    takeovers: int
    live: int
    """Live slots per second beside a backlog."""
    backlog: int
    """Catch-up runs that drain beside them."""
    lease: str | None = None
    """The leader's lease, where its default is not what matters."""


FULL = Scale(
    name="full",
    part=1,
    sizes=(100, 1_000, 10_000),
    own_sizes=(20_000, 100_000),
    repeats=3,
    patience=8.0,
    ticks=50,
    birds=10,
    peers_up_to=10_000,
    week=10_080,
    many=(1_000, 100),
    years=5 * 365 * 1440,
    chains=(1_000, 3_000),
    native_chain=1_000,
    due_per_second=100,
    seconds=20,
    tasks=3_000,
    ledger=1_000_000,
    takeovers=3,
    live=50,
    backlog=20_000,
)

QUICK = Scale(
    name="quick",
    part=10,
    sizes=(100, 1_000, 10_000),
    own_sizes=(),
    repeats=1,
    patience=3.0,
    ticks=20,
    birds=10,
    peers_up_to=1_000,
    week=10_080,
    many=(100, 100),
    years=5 * 365 * 1440,
    chains=(1_000, 3_000),  # celery.chain slows down with its length, so a shorter one is another comparison
    native_chain=1_000,
    due_per_second=100,
    seconds=8,
    tasks=1_000,
    ledger=100_000,
    takeovers=1,
    live=50,
    backlog=4_000,
)

TINY = Scale(
    name="tiny",
    part=365,
    sizes=(20,),
    own_sizes=(),
    repeats=1,
    patience=2.0,
    ticks=3,
    birds=2,
    peers_up_to=20,
    week=60,
    many=(3, 5),
    years=2_000,
    chains=(10,),
    native_chain=5,
    due_per_second=5,
    seconds=1,
    tasks=20,
    ledger=200,
    takeovers=1,
    live=5,
    backlog=40,
    lease="3s",
)

SCALES = {scale.name: scale for scale in (FULL, QUICK, TINY)}
