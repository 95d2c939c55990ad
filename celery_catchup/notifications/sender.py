"""Send queued notifications beside the ticks: one thread for each receiver, so that none delays another."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime

from celery_catchup.clock import SystemClock
from celery_catchup.config.receivers import Receiver
from celery_catchup.events.log_lines import logfmt
from celery_catchup.events.recurring_problems import RecurringProblem, backoff
from celery_catchup.notifications.delivery import DeliveryError, deliver
from celery_catchup.store import Leadership, Notices
from celery_catchup.store.error_advice import STORE_FAILS
from celery_catchup.store.notices import ClaimedNotice, Settled

logger = logging.getLogger(__name__)

_CLOCK = SystemClock()
"""A receiver compares the time of sending with its own clock, whatever clock beat has."""
_LOOK_EVERY = 2.0
"""Seconds between two looks at the queue, unless something was queued."""
_SHORTEST, _LONGEST = 2_000, 15 * 60_000
"""Milliseconds before a notification is sent again; doubled after each failure."""
_GIVE_UP = 24 * 3_600_000
"""Milliseconds after which a notification is dropped."""


class Sender:
    """Sends the notifications of one receiver while this beat leads."""

    def __init__(
        self,
        receiver: Receiver,
        notices: Notices,
        leadership: Leadership,
        *,
        deliver: Callable[..., None] = deliver,
        now: Callable[[], datetime] = _CLOCK.now,
    ) -> None:
        self._receiver, self._notices, self._leadership = receiver, notices, leadership
        self._deliver, self._now = deliver, now
        self._problem = RecurringProblem(
            "Notifications cannot be sent", logger=logger, monotonic=time.monotonic
        )

    def send_next(self) -> bool:
        """Send the next notification that is due; return False if there is none, or another beat leads."""
        owner, epoch = self._leadership.owner, self._leadership.epoch
        if not epoch:
            return False
        claimed = self._notices.claim(f"{self._receiver.key}:", owner=owner, epoch=epoch)
        if claimed is None:
            return False
        try:
            self._deliver(self._receiver, claimed.notice, timestamp=int(self._now().timestamp()))
        except DeliveryError as error:
            self._failed(claimed, str(error))
        else:
            self._problem.resolved()
            self._notices.settle(claimed, Settled.SENT)
        return True

    def _failed(self, claimed: ClaimedNotice, reason: str) -> None:
        self._problem.report(f"{self._receiver.shown}: {reason}")
        if claimed.waiting >= _GIVE_UP:
            self._notices.settle(claimed, Settled.DROPPED)
            log_dropped(1, f"it was not accepted for a day by {self._receiver.shown}")
            return
        delay = backoff(claimed.attempts + 1, shortest=_SHORTEST, longest=_LONGEST)
        self._notices.settle(claimed, Settled.FAILED, retry_ms=delay)


class Senders:
    """The threads of all receivers."""

    def __init__(self, receivers: Sequence[Receiver], notices: Notices, leadership: Leadership) -> None:
        self._senders = [Sender(one, notices, leadership) for one in receivers]
        self._news = [threading.Event() for _ in self._senders]
        self._ended = threading.Event()

    def start(self) -> None:
        """Start to send."""
        for sender, news in zip(self._senders, self._news, strict=True):
            threading.Thread(
                target=self._run, args=(sender, news), name="celery-catchup-notify", daemon=True
            ).start()

    def wake(self) -> None:
        """Look at the queue now: something was queued."""
        for news in self._news:
            news.set()

    def close(self) -> None:
        """End the threads, each after its present attempt; they are not waited for."""
        self._ended.set()
        self.wake()

    def _run(self, sender: Sender, news: threading.Event) -> None:
        while not self._ended.is_set():
            try:
                more = sender.send_next()
            except STORE_FAILS:  # beat reports it
                more = False
            except Exception:
                logger.exception(logfmt("Notifications cannot be sent", error="unexpected"))
                more = False
            if not more:
                news.wait(_LOOK_EVERY)
                news.clear()


def log_dropped(count: int, why: str) -> None:
    """Log that notifications are not sent."""
    logger.warning(logfmt("Notifications dropped", count=count, detail=why))
