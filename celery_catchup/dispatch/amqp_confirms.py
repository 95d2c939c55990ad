"""Publish to an AMQP broker while earlier messages are not confirmed yet. The only file that uses py-amqp:

- ``Channel.confirm_select`` and ``Channel.events``: number messages, and call back for confirmations, for
  refusals and for messages that no queue takes;
- ``Connection.on_inbound_frame``, ``Transport.having_timeout``, ``Transport._read_buffer``: read these.
  ``Connection.drain_events`` reads one frame with several system calls, and many frames confirm one message;
- ``Connection.transport.write``, ``Connection.frame_max``, ``Channel.channel_id``: write frames.
  ``Channel.basic_publish`` encodes all headers of each message, writes each message by itself, and waits for
  its confirmation. Here what messages have in common is encoded once, and many are written at once;
- ``serialization.dumps``, ``Message.PROPERTIES``: encode as py-amqp does.

`can_pipeline` compares a message with one that py-amqp writes. With another driver, or a py-amqp that has
changed, each message is confirmed before the next is sent.
"""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from functools import cache
from itertools import takewhile
from types import SimpleNamespace
from typing import Any

import amqp  # type: ignore[import-untyped]
from amqp import method_framing, serialization, spec

from celery_catchup.dispatch.prepared_message import Fill, OutgoingMessage, PreparedMessage, Values
from celery_catchup.store import OutboxRun

_METHOD, _HEADER, _BODY, _END = 1, 2, 3, b"\xce"
_FRAME = struct.Struct(">BHI")  # type, channel, length of the payload
_CONTENT = struct.Struct(">HHQ")  # class, weight, length of the body
_LENGTH = struct.Struct(">I")
_ANSWER = struct.Struct(">HHQB")  # class, method, number of the message, flags: 1 for all up to it
_ANSWERS = (spec.Basic.Ack, spec.Basic.Nack)
_AT_ONCE = 65_536
"""Bytes that are written at once. Answers are read before each write: a broker that returns messages must not
wait for us while we wait for it."""

_MOST_ENCODERS = 1024
_SAMPLE = json.dumps(
    {
        "body": "W10=",
        "content_type": "application/json",
        "content_encoding": "utf-8",
        "priority": 3,
        "exchange": "",
        "routing_key": "celery",
        "declare": [],
        "headers": {
            "lang": "py",
            "numbers": [0, None, 2.5, 2**40],
            "nested": {"deep": True},
            "id": "@catchup:task_id@",
            "origin": "x-@catchup:task_id@",
            "is_catchup": "@catchup!is_catchup@",
        },
        "properties": {"correlation_id": "@catchup:task_id@", "delivery_mode": 2, "expiration": "1000"},
    }
)
_dumps = serialization.dumps


def can_pipeline(channel: Any) -> bool:
    """Tell whether messages can be sent to this channel before earlier ones are confirmed."""
    return isinstance(channel, amqp.Channel) and _encodes_as_driver() and _is_readable(channel.connection)


def _is_readable(connection: Any) -> bool:
    """Tell whether frames can be read past py-amqp."""
    parts = ("having_timeout", "_read_buffer")
    return callable(connection.on_inbound_frame) and all(hasattr(connection.transport, one) for one in parts)


@cache
def _encodes_as_driver() -> bool:
    """Tell whether our frames are those that py-amqp writes."""
    message = OutgoingMessage(
        OutboxRun("", {}, {}), PreparedMessage(_SAMPLE), {"task_id": "ü", "is_catchup": True}
    )
    publication, written = message.publication, bytearray()
    connection = SimpleNamespace(frame_max=131_072, bytes_sent=0)
    try:
        write = method_framing.frame_writer(connection, SimpleNamespace(write=written.extend))
        where = _dumps("Bssbb", (0, publication["exchange"], publication["routing_key"], True, False))
        fields = {name: publication[name] for name in ("content_type", "content_encoding", "priority")}
        headers, properties = publication["headers"], publication["properties"]
        content = amqp.Message(message.body, application_headers=headers, **fields, **properties)
        write(_METHOD, 7, spec.Basic.Publish, where, content)
        return Encoder(message.form, 7, connection.frame_max).frames(message) == written
    except Exception:  # noqa: BLE001 - names that are missing, and whatever else has changed
        return False


def stop_confirming(channel: Any) -> None:
    """Let publishing on this channel not wait for confirmations, as Celery's own does not."""
    if isinstance(channel, amqp.Channel):
        vars(channel).pop(
            "basic_publish", None
        )  # of the connection's `confirm_publish`; the class has its own


class Answer(StrEnum):
    """The answer of the broker to a message."""

    CONFIRMED = "confirmed"
    REFUSED = "refused"
    RETURNED = "returned"


class ConfirmingChannel:
    """A channel for publishing only, which knows which of its messages the broker has.

    After an exception nothing more can be published; ``answers`` still has what is known.
    """

    def __init__(self, channel: Any) -> None:
        self._channel, self._connection = channel, channel.connection
        self._encoders: dict[PreparedMessage, Encoder] = {}
        self._buffer = bytearray()
        self._last = 0
        self._returned: set[Any] = set()
        self._sent: dict[int, Any] = {}
        """Messages without an answer: the id of the task by the number on the channel."""
        self.answers: dict[int, Answer] = {}
        """Answers by the number on the channel; the caller removes what it has read."""
        channel.events["basic_ack"].add(self._on_ack)
        channel.events["basic_nack"].add(self._on_nack)
        channel.events["basic_return"].add(self._on_return)
        channel.confirm_select()

    def encode(self, message: OutgoingMessage) -> bytes:
        """Return the frames of a message; raises one of `ENCODING_ERRORS` when AMQP cannot carry it."""
        encoder = self._encoders.get(message.form)
        if encoder is None:
            if len(self._encoders) >= _MOST_ENCODERS:
                self._encoders.clear()
            place = self._channel.channel_id, self._connection.frame_max
            encoder = self._encoders[message.form] = Encoder(message.form, *place)
        return encoder.frames(message)

    def publish(self, frames: bytes, task_id: str) -> int:
        """Send a message, soon, and return its number; the answer comes later.

        Messages that are without an answer at the same time belong to different tasks.
        """
        self._buffer += frames
        self._last += 1
        self._sent[self._last] = task_id
        if len(self._buffer) > _AT_ONCE:
            self.flush()
        return self._last

    def flush(self) -> None:
        """Write what is not written yet."""
        with suppress(TimeoutError):
            while self._sent:
                self._read(timeout=0)
        self._connection.transport.write(bytes(self._buffer))
        self._buffer.clear()

    def wait(self, last: int, *, timeout: float) -> None:
        """Read answers until all messages up to this number have one; raises `TimeoutError`."""
        deadline = time.monotonic() + timeout
        while self._sent and next(iter(self._sent)) <= last:
            self._read(timeout=max(0.001, deadline - time.monotonic()))

    def _read(self, *, timeout: float) -> None:
        """Read what the broker has sent, and note the answers; py-amqp handles all other frames."""
        connection, transport = self._connection, self._connection.transport
        with transport.having_timeout(timeout) as socket:
            received = socket.recv(_AT_ONCE)
        if not received:
            transport.connected = False
            raise OSError("the broker closed the connection")
        rest = transport._read_buffer + received
        while len(rest) > _FRAME.size:
            kind, channel_id, size = _FRAME.unpack_from(rest)
            end = _FRAME.size + size
            if len(rest) <= end:
                break
            payload, mark, rest = rest[_FRAME.size : end], rest[end : end + 1], rest[end + 1 :]
            if mark != _END:
                raise OSError("the broker sent a frame without an end")
            answer = _ANSWER.unpack(payload) if (kind, size) == (_METHOD, _ANSWER.size) else ()
            if channel_id == self._channel.channel_id and answer[:2] in _ANSWERS:
                connection.bytes_recv += 1
                note = self._on_ack if answer[:2] == spec.Basic.Ack else self._on_nack
                note(answer[2], bool(answer[3] & 1))
            else:
                transport._read_buffer = rest  # a handler may read on
                connection.on_inbound_frame((kind, channel_id, payload))
                rest = transport._read_buffer
        transport._read_buffer = rest

    def _on_ack(self, tag: int, multiple: bool) -> None:  # noqa: FBT001 - py-amqp calls it
        for number in self._up_to(tag, multiple=multiple):
            task_id = self._sent.pop(number)
            self.answers[number] = Answer.RETURNED if task_id in self._returned else Answer.CONFIRMED
            self._returned.discard(task_id)

    def _on_nack(self, tag: int, multiple: bool) -> None:  # noqa: FBT001 - py-amqp calls it
        for number in self._up_to(tag, multiple=multiple):
            del self._sent[number]
            self.answers[number] = Answer.REFUSED

    def _up_to(self, tag: int, *, multiple: bool) -> list[int]:
        if multiple:
            return list(takewhile(lambda number: number <= tag, self._sent))
        return [tag] if tag in self._sent else []

    def _on_return(self, error: Exception, exchange: str, routing_key: str, message: Any) -> None:
        """Note a message that no queue takes; its confirmation follows."""
        self._returned.add((message.properties.get("application_headers") or {}).get("id"))


class Encoder:
    """Encode messages of one form as frames of AMQP."""

    def __init__(self, form: PreparedMessage, channel_id: int, frame_max: int) -> None:
        self._channel_id, self._most = channel_id, frame_max - 8
        where = (0, form.publication["exchange"], form.publication["routing_key"], True, False)
        method = struct.pack(">HH", *spec.Basic.Publish) + _dumps("Bssbb", where)
        self._method = self._frame(_METHOD, method)
        self._flags, self._parts = _properties(form)

    def frames(self, message: OutgoingMessage) -> bytes:
        """Return the frames of a message."""
        values, body = message.values, message.body
        parts = [part if isinstance(part, bytes) else part(values) for part in self._parts]
        header = b"".join((_CONTENT.pack(spec.Basic.CLASS_ID, 0, len(body)), self._flags, *parts))
        if len(header) > self._most:
            raise ValueError(f"its headers have {len(header):,} bytes, the broker accepts {self._most:,}")
        bodies = [self._frame(_BODY, body[i : i + self._most]) for i in range(0, len(body), self._most)]
        return b"".join((self._method, self._frame(_HEADER, header), *bodies))

    def _frame(self, kind: int, payload: bytes) -> bytes:
        return b"".join((_FRAME.pack(kind, self._channel_id, len(payload)), payload, _END))


Part = bytes | Callable[[Values], bytes]


def _properties(form: PreparedMessage) -> tuple[bytes, list[Part]]:
    """Return the flags of the properties that a message has, and the properties in AMQP's order: bytes where
    all messages have the same."""
    names = ("content_type", "content_encoding", "priority")
    fixed = {**form.properties, **{name: form.publication[name] for name in names}}
    flags, parts = 0, list[Part]()
    for place, (name, kind) in enumerate(amqp.Message.PROPERTIES):
        if name == "application_headers":
            parts.append(_table(form))
        elif name in form.own_properties:
            parts.append(_own(kind, form.own_properties[name]))
        elif fixed.get(name) is not None:
            parts.append(_dumps(kind, [fixed[name]]))
        else:
            continue
        flags |= 1 << (15 - place)
    return struct.pack(">H", flags), parts


def _own(kind: str, fill: Fill) -> Part:
    if kind != "s":
        return lambda values: _dumps(kind, [fill(values)])

    def short(values: Values) -> bytes:
        text = str(fill(values)).encode()
        return bytes((len(text),)) + text  # raises `ValueError` for more than 255 bytes

    return short


def _table(form: PreparedMessage) -> Part:
    """Encode the headers: those that differ come last."""
    fixed = _dumps("F", [form.headers])[_LENGTH.size :]
    own = [(_dumps("s", [name]), fill) for name, fill in form.own_headers.items()]

    def table(values: Values) -> bytes:
        parts = [fixed]
        for name, fill in own:
            value = fill(values)
            if isinstance(value, str):
                text = value.encode()
                parts += (name, b"S", _LENGTH.pack(len(text)), text)
            else:
                parts += (name, _flag(value) if isinstance(value, bool) else _value(value))
        encoded = b"".join(parts)
        return _LENGTH.pack(len(encoded)) + encoded

    return table


def _value(value: Any) -> bytes:
    """Encode the value of a header, with its type."""
    return bytes(_dumps("A", [[value]])[_LENGTH.size :])


_flag = cache(_value)  # py-amqp takes a third of the time of a message for it
