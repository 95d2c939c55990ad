"""Advice: what an error of Redis means, and what to do about it, in a line."""

from __future__ import annotations

import re

from redis.exceptions import (
    AskError,
    AuthenticationError,
    BusyLoadingError,
    ClusterDownError,
    ConnectionError,
    MasterDownError,
    MovedError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
    ResponseError,
    TimeoutError,
    TryAgainError,
)
from redis.sentinel import MasterNotFoundError

from celery_catchup.error_text import masked
from celery_catchup.errors import CatchupError

# RedisClusterException is no RedisError.
STORE_FAILS = (RedisError, RedisClusterException, OSError)
"""What it looks like when Redis cannot be used; it may be over a second later."""

_LONGEST = 200
"""Characters of somebody else's message that ours repeats."""

# Behind these, redis-py shows its client objects, and the server the place in a script.
_NOISE = re.compile(r" : <.*| (?:script: )?(?:[0-9a-f]{40}, )?on @user_script:\d+.*", re.DOTALL)
_REFUSED_COMMAND = re.compile(r"no permissions to run the '([^']+)' command")

_RIGHTS = "the user lacks a right"
_WAITING = "it is tried again"

_CLUSTER = "it is a node of a Redis Cluster, which can keep the state, but cannot be a broker"

# Texts come first: they tell more than the kind. Kinds are needed, because redis-py takes the
# server's own code (NOAUTH, OOM, ...) off the text where it has a kind for it.
_BY_TEXT = (
    ("certificate has expired", "the server's certificate is too old; have it renewed"),
    ("certificate is not yet valid", "the server's certificate is too new; look at the clocks"),
    ("Hostname mismatch", "the certificate is for another host; write the name that it is made out to"),
    ("IP address mismatch", "the certificate is for another host; write the name that it is made out to"),
    (
        "CERTIFICATE_VERIFY_FAILED",
        "no known authority has signed the server's certificate; name the right one with ssl_ca_certs",
    ),
    ("WRONG_VERSION_NUMBER", "the server does not speak TLS at this port; write redis://, or the TLS port"),
    ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "the server wants a certificate of ours; see ssl_certfile"),
    ("[SSL", "TLS fails; look at the ssl_ options of the URL and at the server's log"),
    ("[X509", "a certificate file is none; look at the ssl_ options of the URL"),
    ("unix socket", "nobody listens at this socket; start the server, or mend the path in the URL"),
    ("No such file", "a file of the ssl_ options of the URL is missing; mend its path"),
    ("max number of clients", f"the server accepts no more clients; raise maxclients; {_WAITING}"),
    ("Authentication required", "the server wants a password; put it into the URL"),
    ("without any password configured", "the server has no password; take it out of the URL"),
    ("DB index is out of range", "the server has fewer databases; mend the number in the URL"),
    ("SELECT is not allowed in cluster", "a Redis Cluster has database 0 only; mend the URL"),
    ("BUSY ", f"the server is busy with somebody's script; {_WAITING}"),
    ("MISCONF ", "the server cannot write to its disk; free some space, and look at its log"),
    ("NOREPLICAS ", f"the server has too few replicas to accept writes; {_WAITING}"),
    # Before redis-py 6 these had no kinds of their own.
    ("MASTERDOWN ", f"the replica has lost its primary; {_WAITING}"),
    ("CLUSTERDOWN ", f"the Redis Cluster is down; {_WAITING}"),
    ("MOVED ", _CLUSTER),
    ("CROSSSLOT ", "the server is a Redis Cluster and the keys have two homes; this is a bug, report it"),
    ("WRONGTYPE ", "somebody else writes to our keys; set catchup_namespace to a name of its own"),
    ("ACL failure in script", f"{_RIGHTS}; see ACL LOG on the server"),
    ("The user executing the script can't", f"{_RIGHTS}; see ACL LOG on the server"),
    ("previous master is now", "the server is a replica by now; its Sentinels are asked again"),
    ("Name or service not known", "no such host; mend its name in the URL"),
    ("Connection closed by server", "the server hangs up; write rediss:// if it wants TLS, or see its log"),
    ("Connection reset by peer", "the server hangs up; write rediss:// if it wants TLS, or see its log"),
    ("Connection refused", "nothing listens there; start the server, or mend the URL"),
)
_BY_KIND: tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], str], ...] = (
    (AuthenticationError, "the server refuses user name or password; mend the URL"),
    (NoPermissionError, f"{_RIGHTS}; grant it with ACL SETUSER"),
    (ReadOnlyError, "the server is a replica; name the primary in the URL, or wait for the fail-over"),
    (BusyLoadingError, f"the server is still loading its data; {_WAITING}"),
    (OutOfMemoryError, "the server is out of memory; raise maxmemory, or free some"),
    (MasterDownError, f"the replica has lost its primary; {_WAITING}"),
    (MovedError, _CLUSTER),
    ((AskError, TryAgainError), f"the keys are on their way to another node; {_WAITING}"),
    (ClusterDownError, f"the Redis Cluster is down; {_WAITING}"),
    (MasterNotFoundError, "no Sentinel knows it as up; look at master_name and at the Sentinels"),
    (TimeoutError, f"the server or the way to it is stuck; {_WAITING}"),
    (ConnectionError, f"the server cannot be reached; {_WAITING}"),
)


_FOR_GOOD = ("DB index is out of range", "SELECT is not allowed in cluster", "NOPERM ")


def is_refusal(error: BaseException) -> bool:
    """Whether the server understood us and does not want us as we are: somebody has to mend something."""
    if isinstance(error, AuthenticationError | NoPermissionError):
        return True
    return isinstance(error, ResponseError) and any(mark in str(error) for mark in _FOR_GOOD)


def is_damage(error: BaseException) -> bool:
    """Whether one key is not of the kind that is kept there: the trouble of whoever owns it, not of all."""
    return isinstance(error, ResponseError) and "WRONGTYPE" in str(error)


def explain(error: BaseException) -> str:
    """What happened and what to do, in a line, without a password."""
    if isinstance(error, CatchupError):
        return str(error)
    said = _said(error)
    if not isinstance(error, STORE_FAILS):
        return f"{type(error).__name__}: {said}"
    advice = _advice(error, said)
    return f"{said}; {advice}" if advice else said


def _said(error: BaseException) -> str:
    lines = _NOISE.sub("", str(error)).splitlines()
    return masked(lines[0][:_LONGEST]).rstrip(". ") if lines else type(error).__name__


def _advice(error: BaseException, said: str) -> str:
    refused = _REFUSED_COMMAND.search(said)
    if refused is not None:
        return f"{_RIGHTS}; grant it with ACL SETUSER <user> +{refused[1]}"
    by_text = (advice for mark, advice in _BY_TEXT if mark in said)
    by_kind = (advice for kind, advice in _BY_KIND if isinstance(error, kind))
    return next(by_text, next(by_kind, ""))
