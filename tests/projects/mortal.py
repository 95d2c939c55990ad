"""Ends its process, as a power cut would, right after it has written to a socket for the n-th time.

What was written reaches the server and is executed there; the process never sees the answer.
``CATCHUP_TEST_DIES_AT`` is n. Only writes of this process from now on count.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from typing import Any

_ARRIVAL = 0.02  # seconds that a write on this machine surely takes to arrive and be executed


class _Mortal:
    def __init__(self, left: int) -> None:
        self.left = left

    def counting(self, write: Any) -> Any:
        def counted(sock: socket.socket, *args: Any) -> Any:
            written = write(sock, *args)
            self.left -= 1
            if self.left == 0:
                time.sleep(_ARRIVAL)
                os.kill(os.getpid(), signal.SIGKILL)
            return written

        return counted


def become_mortal() -> None:
    """Count from now on, when the environment says when to die."""
    number = int(os.environ.get("CATCHUP_TEST_DIES_AT", "0"))
    if number:
        mortal = _Mortal(number)
        for name in ("send", "sendall"):
            setattr(socket.socket, name, mortal.counting(getattr(socket.socket, name)))
