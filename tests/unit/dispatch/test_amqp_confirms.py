"""Answers of a broker are read in whatever pieces they arrive; all other frames go to py-amqp."""

from __future__ import annotations

import struct
from collections import defaultdict
from contextlib import contextmanager
from typing import Any

import pytest

from celery_catchup.dispatch.amqp_confirms import Answer, ConfirmingChannel

_ACK, _NACK = (60, 80), (60, 120)
_CHANNEL = 3


def frame(channel: int, payload: bytes, *, kind: int = 1) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"


def answer(what: tuple[int, int], number: int, *, multiple: bool = False, channel: int = _CHANNEL) -> bytes:
    return frame(channel, struct.pack(">HHQB", *what, number, multiple))


class Connection:
    """A connection of py-amqp, as far as a channel uses it; it receives these pieces."""

    frame_max, bytes_recv, connected, _read_buffer = 131_072, 0, True, b""

    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces, self.passed_on, self.transport = pieces, list[Any](), self
        self.on_inbound_frame = self.passed_on.append

    @contextmanager
    def having_timeout(self, _: float) -> Any:
        yield self

    def recv(self, _: int) -> bytes:
        if not self.pieces:
            raise TimeoutError
        return self.pieces.pop(0)

    def write(self, _: bytes) -> None:
        pass


class Channel:
    channel_id = _CHANNEL

    def __init__(self, connection: Connection) -> None:
        self.connection, self.events = connection, defaultdict[str, set[Any]](set)

    def confirm_select(self) -> None:
        pass


def published(*pieces: bytes, count: int) -> tuple[ConfirmingChannel, Connection]:
    connection = Connection(list(pieces))
    channel = ConfirmingChannel(Channel(connection))
    for number in range(count):
        channel.publish(b"", f"task-{number}")
    return channel, connection


@pytest.mark.parametrize("size", [1, 5, 7, 8, 20, 21, 22, 1000])
def test_answers_may_arrive_in_any_pieces(size: int) -> None:
    stream = answer(_ACK, 1) + answer(_NACK, 2) + answer(_ACK, 4, multiple=True)
    channel, _ = published(*(stream[i : i + size] for i in range(0, len(stream), size)), count=4)

    channel.wait(4, timeout=1)

    assert channel.answers == {
        1: Answer.CONFIRMED, 2: Answer.REFUSED, 3: Answer.CONFIRMED, 4: Answer.CONFIRMED,
    }  # fmt: skip


def test_frames_of_others_are_passed_on_in_order_and_an_incomplete_one_is_kept() -> None:
    other, beat = struct.pack(">HHHB", 20, 40, 200, 0), frame(0, b"", kind=8)
    foreign = answer(_ACK, 1, channel=5)
    stream = frame(_CHANNEL, other) + foreign + beat + answer(_ACK, 1) + answer(_ACK, 2)[:9]
    channel, connection = published(stream, count=1)

    channel.wait(1, timeout=1)

    assert connection.passed_on == [(1, _CHANNEL, other), (1, 5, foreign[7:-1]), (8, 0, b"")]
    assert channel.answers == {1: Answer.CONFIRMED}
    assert connection._read_buffer == answer(_ACK, 2)[:9]


def test_the_end_of_the_connection_and_a_damaged_frame_are_errors() -> None:
    ended, connection = published(b"", count=1)
    damaged, _ = published(answer(_ACK, 1)[:-1] + b"x", count=1)

    with pytest.raises(OSError, match="closed"):
        ended.wait(1, timeout=1)
    with pytest.raises(OSError, match="without an end"):
        damaged.wait(1, timeout=1)

    assert not connection.connected
