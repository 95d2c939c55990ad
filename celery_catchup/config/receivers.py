"""Receivers of notifications, as ``catchup_notify`` lists them. Their URLs and secrets are never shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from urllib.parse import urlsplit

from celery_catchup.config.fields import FieldParser, SeveralProblemsError, one_of, problems_of
from celery_catchup.error_text import did_you_mean, listed, shown

MOST_RECEIVERS = 20
"""Each has a thread of its own."""
SHORTEST_SECRET = 16
"""Characters; a shorter one could be guessed from a signature."""
_LONGEST = 2000
_FIELDS = ("url", "on", "format", "secret")


class NotificationKind(StrEnum):
    """The occasion of a notification."""

    MISSED = "missed"
    NOT_RECOVERED = "not_recovered"
    OVERDUE = "overdue"
    RECOVERED = "recovered"
    DEAD = "dead"
    HELD = "held"
    ENTRY_FAILED = "entry_failed"
    LEADER_CHANGED = "leader_changed"
    STATE_LOST = "state_lost"


class Format(StrEnum):
    """The shape of a message."""

    JSON = "json"
    SLACK = "slack"


@dataclass(frozen=True, slots=True)
class Receiver:
    """Where notifications go, which of them, and in which shape."""

    url: str = field(repr=False)
    on: frozenset[NotificationKind] = frozenset(NotificationKind)
    format: Format = Format.JSON
    secret: str | None = field(default=None, repr=False)

    @property
    def shown(self) -> str:
        """The URL without what may be secret: its scheme and host."""
        parts = urlsplit(self.url)
        port = f":{parts.port}" if parts.port is not None else ""
        return f"{parts.scheme}://{parts.hostname}{port}/…"

    @property
    def key(self) -> str:
        """The name of the receiver in the store, which has neither its URL nor its secret."""
        return sha256(self.url.encode()).hexdigest()[:12]

    def __repr__(self) -> str:
        return f"Receiver({self.shown!r})"


def receivers(value: object) -> tuple[Receiver, ...]:
    """Parse ``catchup_notify``; all mistakes at once, without a URL or a secret."""
    if not isinstance(value, list | tuple):
        raise ValueError(f"expected a list of mappings, got {_type(value)}; write [{{'url': 'https://…'}}]")
    if len(value) > MOST_RECEIVERS:
        raise ValueError(f"expected at most {MOST_RECEIVERS} receivers, got {len(value)}; remove some")
    problems: list[str] = []
    found = [_receiver(one, f"[{number}]", problems) for number, one in enumerate(value)]
    keys = [one.key for one in found if one is not None]
    for number, key in enumerate(keys):
        if key in keys[:number]:
            problems.append(f"[{number}].url: is given twice; list all its kinds in one 'on'")
    if problems:
        raise SeveralProblemsError(problems)
    return tuple(one for one in found if one is not None)


def _receiver(value: object, where: str, problems: list[str]) -> Receiver | None:
    """Parse one receiver; add its mistakes to ``problems``."""
    if not isinstance(value, Mapping):
        problems.append(f"{where}: expected a mapping with 'url', got {_type(value)}")
        return None
    before = len(problems)
    for name in value:
        if name not in _FIELDS:
            hint = did_you_mean(name, _FIELDS) or f"; use {listed(_FIELDS)}"
            problems.append(f"{where}: unknown field {shown(name)}{hint}")
    parsers = {"url": _url, "on": _kinds, "format": one_of(Format), "secret": _secret}
    read: dict[str, object] = {}
    for name, parse in parsers.items():
        if name == "url" or value.get(name) is not None:
            try:
                read[name] = parse(value.get(name))
            except ValueError as error:
                problems += [f"{where}.{name}: {problem}" for problem in problems_of(error)]
    return Receiver(**read) if len(problems) == before else None  # type: ignore[arg-type]


def _url(value: object) -> str:
    example = "write it such as 'https://example.com/hook'"
    if value is None:
        raise ValueError(f"missing; {example}")
    if not isinstance(value, str):
        raise ValueError(f"expected a URL, got {_type(value)}; {example}")
    try:
        parts = urlsplit(value)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError(f"host or port of the URL cannot be read; {example}") from None
    if parts.scheme not in ("http", "https"):
        raise ValueError(f"the URL must begin with http:// or https://; {example}")
    if not host or port == 0:
        raise ValueError(f"the URL names no host; {example}")
    if len(value) > _LONGEST or not value.isascii() or not value.isprintable() or " " in value:
        raise ValueError(f"the URL is too long, or has blanks or characters to percent-encode; {example}")
    return value


def _kinds(value: object) -> frozenset[NotificationKind]:
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, list | tuple | set | frozenset) or not words:
        raise ValueError(f"expected a list of kinds such as ['overdue', 'dead'], got {shown(value)}")
    found, problems = set(), []
    for word in words:
        try:
            found.add(one_of(NotificationKind)(word))
        except ValueError as error:
            problems.append(str(error))
    if problems:
        raise SeveralProblemsError(problems)
    return frozenset(found)


def _secret(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected text, got {_type(value)}")
    if len(value) < SHORTEST_SECRET:
        raise ValueError(f"is too short to sign with; use at least {SHORTEST_SECRET} random characters")
    return value


def _type(value: object) -> str:
    return "nothing" if value is None else f"a value of type {type(value).__name__}"


RECEIVERS = FieldParser(receivers, "list of mappings of `url`, `on`, `format`, `secret`")
