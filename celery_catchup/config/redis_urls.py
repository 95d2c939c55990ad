"""Validate Redis URLs without connecting; errors never show a password."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl

from celery_catchup.error_text import did_you_mean, listed, shown

_NETWORK = ("redis", "rediss")
_SOCKETS = ("unix", "redis+socket")
_SENTINEL = "sentinel"
SCHEMES = (*_NETWORK, *_SOCKETS, _SENTINEL)

CREDENTIAL_PROVIDER = "credential_provider"
"""The dotted name of a class that provides user and password, for logins that expire (IAM, Entra ID)."""
LOGIN_OPTIONS = ("db", "username", "password", CREDENTIAL_PROVIDER)
TLS_OPTIONS = (
    "ssl_ca_certs",
    "ssl_ca_data",
    "ssl_ca_path",
    "ssl_cert_reqs",
    "ssl_certfile",
    "ssl_check_hostname",
    "ssl_ciphers",
    "ssl_keyfile",
    "ssl_password",
)
CERT_REQS = ("none", "optional", "required")
KOMBUS_DB = "virtual_host"
"""kombu's name for the option ``db``."""
_YES, _NO = ("true", "1", "yes"), ("false", "0", "no")

_URL = re.compile(r"(?P<scheme>[^:/?#]*)://(?P<rest>.*)", re.DOTALL)
_ADDRESS = re.compile(
    r"(?P<host>\[[0-9a-fA-F:.%]+\]|[^:/?\[\]]*)(:(?P<port>[^/?]*))?(?P<path>[^?]*)(\?(?P<options>.*))?",
    re.DOTALL,
)
_EXAMPLE = "write it such as redis://localhost:6379/0"


def read_redis_url(value: object) -> str:
    """Return the URL if it is valid; raise ValueError with the reason if not.

    No message shows a possible password: neither the part before the ``@`` nor a text in place of a port.
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
        raise ValueError(f"the URL contains blanks or line breaks; {_EXAMPLE}")
    _check_address(match["scheme"], match["rest"])
    return value


def cert_reqs(value: str) -> str:
    """Return ``none``, ``optional`` or ``required``; accept kombu's ``CERT_NONE`` too."""
    read = value.lower().removeprefix("cert_")
    if read not in CERT_REQS:
        raise ValueError(f"ssl_cert_reqs in the URL: expected {listed(CERT_REQS)}, got {shown(value)}")
    return read


def check_hostname(value: str) -> bool:
    """Return whether the certificate must match the host name."""
    if value.lower() not in _YES + _NO:
        raise ValueError(f"ssl_check_hostname in the URL: expected true or false, got {shown(value)}")
    return value.lower() in _YES


def _check_address(scheme: str, rest: str) -> None:
    addresses = rest.split(";") if scheme == _SENTINEL else [rest]
    for address in addresses:
        if scheme in _SOCKETS:
            _check_socket(address)
        else:
            _check_server(address.removeprefix("sentinel://"))
        for name, value in parse_qsl(address.partition("?")[2], keep_blank_values=True):
            _check_option(scheme, name, value)


def _check_option(scheme: str, name: str, value: str) -> None:
    """Refuse unknown options: they would fail every command, or, as a time-out, let it hang."""
    secure = scheme in ("rediss", _SENTINEL)
    known = (*LOGIN_OPTIONS, KOMBUS_DB, *(TLS_OPTIONS if secure else ()))
    if name in TLS_OPTIONS and not secure:
        raise ValueError(f"{name} is for TLS, and the URL begins with {scheme}://; write rediss://")
    if name not in known:
        hint = did_you_mean(name, known) or f"; known are {listed(known)}"
        raise ValueError(f"unknown option {shown(name)} in the URL{hint}")
    if name == "ssl_cert_reqs":
        cert_reqs(value)
    if name == "ssl_check_hostname":
        check_hostname(value)


def _check_socket(rest: str) -> None:
    address = rest.rpartition("@")[2]
    if not address.partition("?")[0].strip("/"):
        raise ValueError("the URL names no socket; write it such as unix:///run/redis.sock")


def _check_server(rest: str) -> None:
    credentials, _, address = rest.rpartition("@")
    if re.search(r"[/?#@]", credentials):
        raise ValueError("user or password contains one of / ? # @; percent-encode it (/ is %2F, @ is %40)")
    match = _ADDRESS.fullmatch(address)
    if match is None or not match["host"]:
        raise ValueError(f"the URL names no host; {_EXAMPLE}")
    if not _is_name(match["host"]):
        raise ValueError(f"{shown(match['host'])} is not a valid host name; {_EXAMPLE}")
    host = f"of host {shown(match['host'])}"
    if match["port"] is not None and not _is_number(match["port"], low=1, high=65535):
        raise ValueError(f"the port {host} is not a number from 1 to 65535; {_EXAMPLE}")
    if not all(_is_number(number, low=0, high=65535) for number in _databases(match)):
        raise ValueError(f"the database {host} is not a number; {_EXAMPLE}")


def _databases(match: re.Match[str]) -> list[str]:
    """Return the texts in the places of a database number."""
    return [
        *filter(None, [match["path"].strip("/")]),
        *re.findall(r"(?:^|&)(?:db|virtual_host)=/?([^&]*)", match["options"] or ""),
    ]


def _is_name(host: str) -> bool:
    """Return whether the name can be looked up: an empty or too long label cannot."""
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return True


def _is_number(text: str, *, low: int, high: int) -> bool:
    return re.fullmatch(r"[0-9]{1,5}", text) is not None and low <= int(text) <= high
