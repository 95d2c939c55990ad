"""What the model is expected to say: it holds with all guards, and not without any one of them.

A row's flags say what may go wrong and which guard is taken away; the verdict is a part of the
assertion that can then fail.
"""

from __future__ import annotations

from dataclasses import dataclass

ONLY = ("CRASHES=0", "EXPIRIES=0", "DOUBLES=0")
"""Nothing goes wrong but what the row names: fewer states."""

STALE_WRITE = "owner==me"
LOST_MOVE = "seen==version"
LOST_SLOT = "state[k]==4"
TWICE = "completions[slot]<=1"
EFFECT_TWICE = "effects[slot]<="
AT_ONCE = "trusts[(1-me)]"


@dataclass(frozen=True)
class Row:
    """One check of the model."""

    says: str
    flags: tuple[str, ...] = ()
    violated: str | None = None

    @property
    def name(self) -> str:
        return self.says.replace(" ", "-").replace(",", "")


HOLDS = (
    Row("all guards, chain", ("DOUBLES=0",)),
    Row("all guards, latest", ("DOUBLES=0", "LATEST")),
    Row("all guards, chain, watermark moved by hand", (*ONLY, "MOVES=1")),
    Row("all guards, chain, roll-back", (*ONLY, "ROLLBACKS=1")),
    Row("all guards, latest, roll-back", (*ONLY, "ROLLBACKS=1", "LATEST")),
)
"""Small enough for every change."""

HOLDS_AT_LENGTH = (
    Row("all guards and faults, chain"),
    Row("all guards and faults, latest", ("LATEST",)),
    Row("all guards and faults, chain, watermark moved by hand", ("MOVES=1",)),
    Row("all guards, chain of three", ("SLOTS=3", "DOUBLES=0")),
    Row("all guards, chain, roll-back and a lost lease", ("CRASHES=0", "DOUBLES=0", "ROLLBACKS=1")),
)

FAILS = (
    Row("without the fence", ("NO_FENCE",), STALE_WRITE),
    Row("fence of the epoch alone, roll-back", (*ONLY, "COUNTER_FENCE", "ROLLBACKS=1"), STALE_WRITE),
    Row("watermark not compared, moved by hand", (*ONLY, "NO_CAS", "MOVES=1"), LOST_MOVE),
    Row("watermark not compared, roll-back", (*ONLY, "NO_CAS", "ROLLBACKS=1"), LOST_SLOT),
    Row("watermark written before the run", ("WATERMARK_FIRST",), LOST_SLOT),
    Row("ledger not asked, watermark moved by hand", ("NO_LEDGER", "MOVES=1"), TWICE),
    Row("chain released without asking who is active", ("NO_GATE",), AT_ONCE),
    Row("claim granted to everybody", ("NO_CLAIM",), EFFECT_TWICE),
    Row("lease not checked before the effect", ("NO_CHECK",), EFFECT_TWICE),
    Row("end accepted from a worker that lost its run", ("NO_TOKEN",), AT_ONCE),
    Row("lost runs not sent again", ("NO_REAPER",), LOST_SLOT),
)
