"""Publish many messages in windows: the broker confirms one window while the next is written.

A message whose confirmation is uncertain is sent again later, and the claim of its run drops the copy. The
failure of one message is its own; a failure of the broker counts for all messages that it has not confirmed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import assert_never

from celery_catchup.dispatch.amqp_confirms import Answer, ConfirmingChannel
from celery_catchup.dispatch.broker import TIMEOUT, Broker
from celery_catchup.dispatch.dispatch_error import (
    ENCODING_ERRORS,
    DispatchError,
    publish_error,
    queue_full,
    unreachable,
    unroutable,
)
from celery_catchup.dispatch.prepared_message import OutgoingMessage


@dataclass(slots=True, eq=False)
class _Window:
    """Messages that are published together; ``sent`` have no answer yet, by their numbers on the channel."""

    messages: list[OutgoingMessage]
    unsent: deque[OutgoingMessage]
    sent: dict[int, OutgoingMessage] = field(default_factory=dict)
    channel: ConfirmingChannel | None = None

    def read_answers(self) -> None:
        """Note what the broker has answered."""
        answers = self.channel.answers if self.channel is not None else {}
        for number in [number for number in self.sent if number in answers]:
            one, answer = self.sent.pop(number), answers.pop(number)
            match answer:
                case Answer.CONFIRMED:
                    one.error = None
                case Answer.RETURNED:
                    one.error = unroutable(one.where)
                case Answer.REFUSED:
                    one.error = queue_full(one.where)
                case _:
                    assert_never(answer)

    def take_open(self) -> list[OutgoingMessage]:
        """Return the messages whose outcome is not known, and stop waiting for it."""
        found = [*self.sent.values(), *self.unsent]
        self.sent, self.unsent = {}, deque()
        return found


class WindowPublisher:
    """Publish windows of messages over the connection of a `Broker`, at most two of them at a time."""

    def __init__(self, broker: Broker, enough: Callable[[], bool]) -> None:
        self._broker, self._enough = broker, enough
        self._flying: list[_Window] = []

    def publish(self, windows: Iterable[list[OutgoingMessage]]) -> Iterator[list[OutgoingMessage]]:
        """Publish windows of messages; yield each when its outcome is known.

        The next window is asked for before the answers to the last one are read.
        """
        try:
            for messages in windows:
                self._flying.append(_Window(messages, deque(messages)))
                self._attempt(self._write)
                if len(self._flying) > 1:
                    yield self._landed()
            while self._flying:
                yield self._landed()
        finally:
            if self._flying:
                self._broker.drop()  # else the next caller would read the answers to these

    def _landed(self) -> list[OutgoingMessage]:
        self._attempt(self._wait)
        return self._flying.pop(0).messages

    def _attempt(self, action: Callable[[], None]) -> None:
        """Write or wait. When the connection fails, the outcome of each message without an answer is unknown.
        When anything else fails, one of them is at fault, and they are published one by one."""
        try:
            action()
        except Exception as error:  # noqa: BLE001 - each driver has its own
            of_connection = not isinstance(error, self._broker.connection.channel_errors)
            for window in self._flying:
                window.read_answers()
            self._broker.drop()
            for window in self._flying:
                if of_connection:
                    _fail(window.take_open(), error)
                else:
                    self._publish_singly(window)

    def _write(self) -> None:
        window = self._flying[-1]
        window.channel = self._broker.confirming()
        if window.channel is None:
            self._publish_singly(window)
            return
        forms = {one.form.declares: one.form for one in window.unsent}
        refused = {key: self._broker.declare(form) for key, form in forms.items()}
        while window.unsent:
            one = window.unsent[0]
            try:
                frames = window.channel.encode(one)
                error = refused[one.form.declares]
            except ENCODING_ERRORS as reason:
                error = publish_error(reason, where=one.where)
            if error is None:
                window.sent[window.channel.publish(frames, one.values["task_id"])] = one
            else:
                one.error = error
            window.unsent.popleft()
        window.channel.flush()

    def _wait(self) -> None:
        window = self._flying[0]
        if window.sent and window.channel is not None:
            given = (one.form.publication["confirm_timeout"] or TIMEOUT for one in window.sent.values())
            window.channel.wait(max(window.sent), timeout=max(given))
            window.read_answers()

    def _publish_singly(self, window: _Window) -> None:
        """Publish one message after the other, each confirmed before the next is sent, until it is enough."""
        messages, nowhere = deque(window.take_open()), dict[str, DispatchError]()
        while messages:
            one = messages.popleft()
            try:
                if one.where in nowhere:  # one reconnect for each of a thousand messages would take long
                    raise nowhere[one.where]
                self._broker.publish(one.publication)
                one.error = None
            except DispatchError as error:
                one.error = error
                if error.code == "unroutable":
                    nowhere[one.where] = error
                if error.temporary:
                    _fail(messages, error)
                    return
            if self._enough():
                window.messages = [one for one in window.messages if one not in messages]
                return


def _fail(messages: Iterable[OutgoingMessage], error: Exception) -> None:
    failure = error if isinstance(error, DispatchError) else unreachable(error)
    for one in messages:
        one.error = failure
