"""Explain errors of Redis: the cause and the remedy, in one line."""

from __future__ import annotations

import re

from redis import exceptions
from redis.sentinel import MasterNotFoundError

from celery_catchup.error_text import masked
from celery_catchup.errors import CatchupError

# RedisClusterException is not a RedisError.
STORE_FAILS = (exceptions.RedisError, exceptions.RedisClusterException, OSError)
"""Errors of an unusable Redis; it may work again a second later."""

_LONGEST = 200
"""Most characters that are quoted of a foreign message."""

# From here on, redis-py shows its client objects, and the server the position in a script.
_NOISE = re.compile(r" : <.*| (?:script: )?(?:[0-9a-f]{40}, )?on @user_script:\d+.*", re.DOTALL)
_REFUSED_COMMAND = re.compile(r"no permissions to run the '([^']+)' command")

_RIGHTS = "the user lacks a permission"
_WAITING = "celery_catchup retries"

_CLUSTER = "it is a node of a Redis Cluster, which can keep the state, but cannot be a broker"

# Texts come first: they say more than the class. Classes are needed, because redis-py removes the
# server's own code (NOAUTH, OOM, ...) from the text where it has a class for it.
_BY_TEXT = (
    ("certificate has expired", "the server's certificate has expired; renew it"),
    ("certificate is not yet valid", "the server's certificate is not valid yet; check the clocks"),
    ("Hostname mismatch", "the certificate is for another host; write the host name of the certificate"),
    ("IP address mismatch", "the certificate is for another host; write the host name of the certificate"),
    (
        "CERTIFICATE_VERIFY_FAILED",
        "no known authority has signed the server's certificate; name its authority with ssl_ca_certs",
    ),
    ("WRONG_VERSION_NUMBER", "the server does not speak TLS at this port; write redis://, or the TLS port"),
    ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "the server requires a client certificate; set ssl_certfile"),
    ("[SSL", "TLS failed; check the ssl_ options of the URL and the server's log"),
    ("[X509", "a certificate file is invalid; check the ssl_ options of the URL"),
    ("unix socket", "nothing listens at this socket; start the server, or correct the path in the URL"),
    ("No such file", "a file of the ssl_ options of the URL is missing; correct its path"),
    ("max number of clients", f"the server accepts no more clients; raise maxclients; {_WAITING}"),
    ("Authentication required", "the server requires a password; put it into the URL"),
    ("without any password configured", "the server has no password; remove it from the URL"),
    ("DB index is out of range", "the server has fewer databases; correct the number in the URL"),
    ("SELECT is not allowed in cluster", "a Redis Cluster has database 0 only; correct the URL"),
    ("BUSY ", f"the server is busy with another client's script; {_WAITING}"),
    ("MISCONF ", "the server cannot write to its disk; free some space, and check its log"),
    ("NOREPLICAS ", f"the server has too few replicas to accept writes; {_WAITING}"),
    # Before redis-py 6 these had no classes of their own.
    ("MASTERDOWN ", f"the replica has lost its primary; {_WAITING}"),
    ("CLUSTERDOWN ", f"the Redis Cluster is down; {_WAITING}"),
    ("MOVED ", _CLUSTER),
    ("CROSSSLOT ", "the keys belong to two nodes of a Redis Cluster; this is a bug, report it"),
    ("WRONGTYPE ", "another program writes to these keys; set catchup_namespace to a name of its own"),
    ("ACL failure in script", f"{_RIGHTS}; see ACL LOG on the server"),
    ("The user executing the script can't", f"{_RIGHTS}; see ACL LOG on the server"),
    ("previous master is now", "the server is a replica now; celery_catchup asks its Sentinels again"),
    ("Name or service not known", "unknown host; correct its name in the URL"),
    (
        "Connection closed by server",
        "the server closed the connection; write rediss:// if it requires TLS, or check its log",
    ),
    (
        "Connection reset by peer",
        "the server closed the connection; write rediss:// if it requires TLS, or check its log",
    ),
    ("Connection refused", "nothing listens there; start the server, or correct the URL"),
)
_BY_CLASS: tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], str], ...] = (
    (exceptions.AuthenticationError, "authentication failed; correct user name or password in the URL"),
    (exceptions.NoPermissionError, f"{_RIGHTS}; grant it with ACL SETUSER"),
    (
        exceptions.ReadOnlyError,
        "the server is a replica; name the primary in the URL, or wait for the fail-over",
    ),
    (exceptions.BusyLoadingError, f"the server is still loading its data; {_WAITING}"),
    (exceptions.OutOfMemoryError, "the server is out of memory; raise maxmemory, or free some"),
    (exceptions.MasterDownError, f"the replica has lost its primary; {_WAITING}"),
    (exceptions.MovedError, _CLUSTER),
    ((exceptions.AskError, exceptions.TryAgainError), f"the keys are moving to another node; {_WAITING}"),
    (exceptions.ClusterDownError, f"the Redis Cluster is down; {_WAITING}"),
    (MasterNotFoundError, "no Sentinel knows this primary as up; check master_name and the Sentinels"),
    (exceptions.TimeoutError, f"the server or the network does not answer; {_WAITING}"),
    (exceptions.ConnectionError, f"the server cannot be reached; {_WAITING}"),
)
_FOR_GOOD = ("DB index is out of range", "SELECT is not allowed in cluster", "NOPERM ")


def is_refusal(error: BaseException) -> bool:
    """Whether the server rejects this client for good: only a change of configuration helps."""
    if isinstance(error, exceptions.AuthenticationError | exceptions.NoPermissionError):
        return True
    return isinstance(error, exceptions.ResponseError) and any(mark in str(error) for mark in _FOR_GOOD)


def is_damage(error: BaseException) -> bool:
    """Whether a key has the wrong type: only the entry that owns it fails."""
    return isinstance(error, exceptions.ResponseError) and "WRONGTYPE" in str(error)


def explain(error: BaseException) -> str:
    """Say what happened and what to do, in one line, without a password."""
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
    by_class = (advice for one, advice in _BY_CLASS if isinstance(error, one))
    return next(by_text, next(by_class, ""))
