"""Redis URLs: read without connecting, refused with a reason, and never shown with their password."""

from __future__ import annotations

import re

from celery_catchup.wording import did_you_mean, listed, shown

_NETWORK = ("redis", "rediss")
_SOCKETS = ("unix", "redis+socket")
_SENTINEL = "sentinel"
SCHEMES = (*_NETWORK, *_SOCKETS, _SENTINEL)

_URL = re.compile(r"(?P<scheme>[^:/?#]*)://(?P<rest>.*)", re.DOTALL)
_ADDRESS = re.compile(
    r"(?P<host>\[[0-9a-fA-F:.%]+\]|[^:/?\[\]]*)(:(?P<port>[^/?]*))?(?P<path>[^?]*)(\?(?P<options>.*))?",
    re.DOTALL,
)
_EXAMPLE = "write it such as redis://localhost:6379/0"


def read_redis_url(value: object) -> str:
    """The URL itself when it could be one; a server is not asked.

    No message shows what could be a password: neither the part before the ``@`` nor,
    where a number should be, the text in place of a port.
    """
    if not isinstance(value, str):
        raise ValueError(f"expected a Redis URL, got {shown(value)}; {_EXAMPLE}")
    match = _URL.fullmatch(value)
    if match is None:
        raise ValueError(f"the URL has no scheme; {_EXAMPLE}")
    if match["scheme"] not in SCHEMES:
        scheme = match["scheme"]
        raise ValueError(
            f"unknown scheme {shown(scheme)}; use {listed(SCHEMES)}{did_you_mean(scheme, SCHEMES)}"
        )
    if not value.isprintable() or " " in value:
        raise ValueError(f"the URL has blanks or line breaks in it; {_EXAMPLE}")
    _check_address(match["scheme"], match["rest"])
    return value


def _check_address(scheme: str, rest: str) -> None:
    if scheme in _SOCKETS:
        _check_socket(rest)
    elif scheme == _SENTINEL:
        for address in rest.split(";"):
            _check_server(address.removeprefix("sentinel://"))
    else:
        _check_server(rest)


def _check_socket(rest: str) -> None:
    address = rest.rpartition("@")[2]
    if not address.partition("?")[0].strip("/"):
        raise ValueError("the URL names no socket; write it such as unix:///run/redis.sock")


def _check_server(rest: str) -> None:
    credentials, _, address = rest.rpartition("@")
    if re.search(r"[/?#@]", credentials):
        raise ValueError("user or password has one of / ? # @ in it; percent-encode it (/ is %2F, @ is %40)")
    match = _ADDRESS.fullmatch(address)
    if match is None or not match["host"]:
        raise ValueError(f"the URL names no host; {_EXAMPLE}")
    host = f"of host {shown(match['host'])}"
    if match["port"] is not None and not _is_number(match["port"], low=1, high=65535):
        raise ValueError(f"the port {host} is not a number from 1 to 65535; {_EXAMPLE}")
    if not all(_is_number(number, low=0, high=65535) for number in _databases(match)):
        raise ValueError(f"the database {host} is not a number; {_EXAMPLE}")


def _databases(match: re.Match[str]) -> list[str]:
    """What stands in the places of a database number."""
    return [
        *filter(None, [match["path"].strip("/")]),
        *re.findall(r"(?:^|&)db=([^&]*)", match["options"] or ""),
    ]


def _is_number(text: str, *, low: int, high: int) -> bool:
    return re.fullmatch(r"[0-9]{1,5}", text) is not None and low <= int(text) <= high
