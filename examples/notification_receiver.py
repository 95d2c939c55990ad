"""A receiver of notifications: verifies the signature, ignores copies, and prints what happened.

Start it with ``NOTIFY_SECRET=… python notification_receiver.py 8080``, and let ``catchup_notify`` name it::

    catchup_notify = [{"url": "http://127.0.0.1:8080/", "secret": os.environ["NOTIFY_SECRET"]}]

It uses the standard library only. Behind a proxy, let that speak HTTPS.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import sys
import time
from collections import OrderedDict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SECRET = os.environ.get("NOTIFY_SECRET", "")
OLDEST = 300
"""Seconds: an older message, or one from the future, may be a recorded copy."""
LARGEST = 64 * 1024
MOST_KNOWN = 10_000

known: OrderedDict[str, None] = OrderedDict()
"""Ids of the last notifications; keep them in your database to survive a restart."""


def is_genuine(headers: Any, body: bytes) -> bool:
    """Compare the signature with that of the timestamp and the body, and the timestamp with the clock."""
    timestamp = headers.get("X-Catchup-Timestamp", "")
    if not timestamp.isdecimal() or abs(time.time() - int(timestamp)) > OLDEST:
        return False
    expected = hmac.new(SECRET.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(f"sha256={expected}", headers.get("X-Catchup-Signature", ""))


class Receiver(BaseHTTPRequestHandler):
    """Answers 204 for a notification that was taken, also for a copy: it would be sent again otherwise."""

    timeout = 10

    def do_POST(self) -> None:
        """Take one notification."""
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if 0 < length <= LARGEST else b""
        if not SECRET or not is_genuine(self.headers, body):
            self.send_error(401)
            return
        notification = json.loads(body)
        if notification["id"] not in known:
            known[notification["id"]] = None
            if len(known) > MOST_KNOWN:
                known.popitem(last=False)
            print(notification["kind"], notification["entry"], notification["summary"], flush=True)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Log nothing for each request."""


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8080
    ThreadingHTTPServer(("127.0.0.1", port), Receiver).serve_forever()
