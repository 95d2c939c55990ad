"""The real server behind the simulated network: its clock is ours, and it can be set back."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from redis.connection import UnixDomainSocketConnection
from redis.exceptions import ResponseError

from celery_catchup.store.store import Script

CLOCK = "simulated-clock"
QUEUE = "celery"
DECIDING = ("lead", "commit", "store_entries")
"""Scripts that move watermarks."""
_PRELUDE = f"""
local function simulated_time()
  local ms = tonumber(redis.call('GET', '{CLOCK}'))
  return {{ tostring(math.floor(ms / 1000)), tostring((ms % 1000) * 1000) }}
end
"""
_PATIENCE = "return 300000 * 2 ^"
PATIENCE = 40 * 60_000
"""Milliseconds until an unclaimed run is first looked at; leases are scaled by more than that."""
_TIME = re.compile(r"""redis\.call\(\s*['"]TIME['"]\s*\)""")

Command = tuple[Any, ...]
Drained = Callable[[list[bytes]], None]


def on_simulated_time(scripts: Mapping[str, Script]) -> dict[str, Script]:
    """The shipped scripts, asking the simulated clock wherever they ask the server's."""
    timed = {
        name: replace(one, text=_PRELUDE + _slowed(_TIME.sub("simulated_time()", one.text)))
        for name, one in scripts.items()
    }
    assert all(timed[name].text.count("simulated_time()") > 1 for name in ("lead", "claim")), (
        "nobody asks for the time"
    )
    return timed


def _slowed(text: str) -> str:
    """The first look at an unclaimed run comes later than a worker's pulse, as it does in production."""
    assert _PATIENCE in text, "patience is written otherwise; mend the simulator"
    return text.replace(_PATIENCE, f"return {PATIENCE} * 2 ^")


class Server:
    """Executes commands one after the other; what a script pushes to the broker's list is handed on."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.drained: Drained = lambda messages: None
        self.looked_at: list[Command] = []
        self.seen: list[Any] = []
        """What is asked beside scripts that decide, in the same trip, and the answers to that."""
        self._packed: dict[Command, bytes] = {}
        self._link = UnixDomainSocketConnection(path=path, protocol=2)
        self._link.connect()
        self.scripts: dict[str, str] = {}
        self.commands = 0
        self._clock_at = -1

    def begin(self, scripts: Mapping[str, Script]) -> None:
        """An empty server that knows no script."""
        self.scripts = {script.sha: name for name, script in scripts.items()}
        self.scripts |= {script.text: name for name, script in scripts.items()}
        self._clock_at = -1
        self.ask([("FLUSHALL",), ("SCRIPT FLUSH",)])

    def close(self) -> None:
        self._link.disconnect()

    def perform(self, commands: Sequence[Command], *, server_ms: int) -> list[Any]:
        """What clients ask for; errors are among the answers."""
        self.commands += len(commands)
        if not any(str(command[0]).upper() in ("EVAL", "EVALSHA") for command in commands):
            return self.ask(commands)
        ahead = [] if self._clock_at == server_ms else [("SET", CLOCK, server_ms)]
        self._clock_at = server_ms
        beside = self.looked_at if self.name_of(commands[0]) in DECIDING else []
        answers = self.ask([*ahead, *commands, *beside, ("RPOP", QUEUE, 100)])
        if answers[-1]:
            self.drained(answers[-1])
        first, last = len(ahead), len(ahead) + len(commands)
        self.seen = answers[last:-1]
        return answers[first:last]

    def ask(self, commands: Sequence[Command]) -> list[Any]:
        """Outside the simulated world."""
        self._link.send_packed_command([b"".join(map(self._pack, commands))])
        return [self._answer() for _ in commands]

    def _pack(self, command: Command) -> bytes:
        known = self._packed.get(command) if command[0] in ("HMGET", "RPOP") else None
        if known is None:
            known = b"".join(self._link.pack_command(*str(command[0]).split(), *command[1:]))
            if len(command) < 20 and command[0] in ("HMGET", "RPOP"):
                self._packed[command] = known
        return known

    def _answer(self) -> Any:
        try:
            return self._link.read_response()
        except ResponseError as error:
            return error

    def name_of(self, command: Command) -> str:
        """A script's name, or the command's."""
        word = str(command[0]).upper()
        return self.scripts.get(str(command[1]), "eval") if word in ("EVAL", "EVALSHA") else word.lower()

    # -- setting it back ---------------------------------------------------------------------

    def snapshot(self) -> list[tuple[bytes, bytes]]:
        """Everything it holds, without the clock."""
        keys = sorted(key for key in self.ask([("KEYS", "*")])[0] if key != CLOCK.encode())
        values = self.ask([("DUMP", key) for key in keys]) if keys else []
        return list(zip(keys, values, strict=True))

    def restore(self, snapshot: Iterable[tuple[bytes, bytes]]) -> None:
        """What came after the snapshot is forgotten."""
        self._clock_at = -1
        self.ask([("FLUSHALL",), *(("RESTORE", key, 0, value) for key, value in snapshot)])
