"""The network: every command of the shipped code passes here, and may meet a fault before or after."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from redis import Redis
from redis.connection import UnixDomainSocketConnection
from redis.exceptions import ConnectionError, RedisError, TimeoutError

from tests.simulation.hub import CrashError, Hub, Process
from tests.simulation.server import Command, Server

TIMEOUT = 2500
"""Milliseconds until the shipped client gives up on an answer."""
FATES = ("lost_request", "lost_reply", "late", "crash_before", "crash_after", "stop_before", "stop_after")
Watcher = Callable[[Process, str, Command, Any], None]


@dataclass
class Network:
    """Between the processes of one simulated world and its server."""

    hub: Hub
    server: Server
    trouble: float = 0.0
    """How likely it is that a command meets a fault."""
    server_skew_ms: int = 0
    down_until: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    watchers: list[Watcher] = field(default_factory=list)
    receivers: list[Callable[[Process, str, Any], None]] = field(default_factory=list)
    weights: Sequence[int] = (4, 6, 3, 2, 3, 2, 2)

    @property
    def server_ms(self) -> int:
        return self.hub.now + self.server_skew_ms

    def count(self, fault: str) -> None:
        self.faults[fault] = self.faults.get(fault, 0) + 1

    def reachable(self, process: Process) -> bool:
        return self.hub.now >= max(self.down_until, process.cut_off_until)

    def round_trip(self, process: Process, commands: Sequence[Command]) -> list[Any]:
        """Carry the commands to the server and the answers back, or not."""
        if not process.alive:
            raise CrashError
        hub, name = self.hub, self.server.name_of(commands[-1 if len(commands) == 1 else 1])
        fate, length = self._fate(process, name)
        if name == "commit":
            process.notes.setdefault("planned", process.notes["tick"])
        hub.sleep(hub.random.randint(0, 2))
        if not self.reachable(process):
            hub.trace(process.name, name, "unreachable")
            hub.sleep(TIMEOUT)
            raise TimeoutError("simulated: no answer")
        if fate:
            self.count(fate)
            process.notes["trouble"] = hub.now + length
            hub.trace(process.name, name, fate, length)
        if fate in ("lost_request", "late", "crash_before", "stop_before"):
            self._before(process, commands, fate, length)
        answers = self.execute(process, commands)
        if fate == "lost_reply":
            hub.sleep(hub.random.choice((1, TIMEOUT)))
            raise ConnectionError("simulated: the answer was lost")
        if fate == "crash_after":
            process.die()
            raise CrashError
        if fate == "stop_after":
            process.stop(length)
        hub.sleep(hub.random.randint(0, 2))
        for receiver in self.receivers:
            receiver(process, name, answers[0])
        return answers

    def _fate(self, process: Process, name: str) -> tuple[str, int]:
        draw = self.hub.random
        for trap in list(process.traps):
            if not trap[0] or name in trap[0].split("|"):
                process.traps.remove(trap)
                return trap[1], trap[2]
        if draw.random() >= self.trouble:
            return "", 0
        fate = draw.choices(FATES, self.weights)[0]
        return fate, round(draw.expovariate(1 / 1_800_000)) if fate in (
            "stop_before",
            "stop_after",
        ) else 30_000

    def _before(self, process: Process, commands: Sequence[Command], fate: str, length: int) -> None:
        hub = self.hub
        if fate == "crash_before":
            process.die()
            raise CrashError
        if fate == "stop_before":
            process.stop(length)
            hub.sleep(0)
            return
        if fate == "late":  # it arrives all the same, when nobody waits for the answer any more
            ghost = Process(hub, process.name, process.clock)
            ghost.notes = process.notes
            hub.spawn(ghost, lambda: self._arrive(ghost, commands), after=hub.random.randint(0, 2 * length))
        hub.sleep(TIMEOUT)
        raise TimeoutError("simulated: no answer")

    def _arrive(self, ghost: Process, commands: Sequence[Command]) -> None:
        self.execute(ghost, commands)

    def execute(self, process: Process, commands: Sequence[Command]) -> list[Any]:
        answers = self.server.perform(commands, server_ms=self.server_ms)
        if len(commands) > 1:
            self.hub.trace(process.name, self.server.name_of(commands[1]), "and others", len(commands))
            return answers
        name = self.server.name_of(commands[0])
        self.hub.trace(process.name, name, _brief(answers[0]))
        for watcher in self.watchers:
            watcher(process, name, commands[0], answers[0])
        return answers


def _brief(answer: Any) -> str:
    """Enough to tell two answers apart; nothing whose order is the server's own."""
    if isinstance(answer, list | dict):
        return f"[{len(answer)} {_brief(answer[0]) if isinstance(answer, list) and answer else ''}]"
    return str(answer)[:20] if isinstance(answer, int | Exception) else f"{type(answer).__name__}"


class SimulatedConnection(UnixDomainSocketConnection):
    """A connection of the shipped client that leads into the network instead of to a socket."""

    network: Network

    def connect(self) -> None:
        self._owner = self.network.hub.current
        self._sock: Any = self
        self._asked: list[Command] = []
        self._answers: list[Any] = []

    def disconnect(self, *_: Any, **__: Any) -> None:
        self._sock, self._answers = None, []

    def can_read(self, *_: Any, **__: Any) -> bool:
        """Whether an answer has arrived that was sent for; it takes a while."""
        return bool(self._answers) and self.network.hub.random.random() < 0.5

    def pack_commands(self, commands: Any) -> Any:
        self._asked = [tuple(command) for command in commands]
        return []

    def send_command(self, *args: Any, **_: Any) -> None:
        self._asked = [args]
        self.send_packed_command([])

    def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        if command:  # the caller has encoded it by itself
            self._asked = [_decoded(b"".join(command))]
        if self._sock is None:
            asked = self._asked
            self.connect()
            self._asked = asked
        process = self.network.hub.current
        assert process is not None
        try:
            self._answers = self.network.round_trip(process, self._asked)
        except (ConnectionError, TimeoutError) as error:
            self._answers = [error]  # a lost request is noticed when the answer is read

    def read_response(self, *_: Any, **__: Any) -> Any:
        answer = self._answers.pop(0)
        if isinstance(answer, RedisError):
            raise answer
        return answer


def _decoded(packed: bytes) -> Command:
    """The words of an encoded command."""
    words, at = list[str](), packed.index(b"\r\n") + 2
    while at < len(packed):
        begin = packed.index(b"\r\n", at) + 2
        end = begin + int(packed[at + 1 : begin])
        words.append(packed[begin:end].decode())
        at = end + 2
    return tuple(words)


def lead_into(network: Network, client: Redis) -> Redis:
    """Let a client of the shipped code speak to the simulated network; its options stay its own."""
    kind = type("Connection", (SimulatedConnection,), {"network": network})
    client.connection_pool.connection_class = kind
    return client
