"""Every way to a server that a URL can tell: it works, it is safe by default, and it never hangs."""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import kombu
import pytest
import redis
from celery import Celery
from redis.exceptions import RedisError

import celery_catchup
from celery_catchup.beat.scheduler import Scheduler
from celery_catchup.config.app_settings import read_settings
from celery_catchup.dispatch import Mode
from celery_catchup.store import Keys, connect, connection
from celery_catchup.store.connection import TIMEOUT, explain
from celery_catchup.store.opening import open_store
from celery_catchup.testing import FakeClock
from celery_catchup.worker_plugin.installation import install
from tests.acceptance.proxies import Proxy
from tests.integration.beats import NAMESPACE, Beat, Broker
from tests.integration.servers import (
    MASTER,
    Authority,
    Cluster,
    Server,
    Watched,
    a_scheduler,
    a_server,
    a_tls_server,
    until,
)

TEN, ELEVEN, NOON = "2026-02-07T10:00:00Z", "2026-02-07T11:00:00Z", "2026-02-07T12:00:00Z"
ENTRIES = {"etl": ("0 * * * *", {"window": "6h", "overlap_policy": "allow"})}
ROOT = Path(celery_catchup.__file__).parent.parent

SLACK = 0.5  # seconds for everything but waiting
CANARY = "canary-2f7b"
ODD = "p@ss:w/or%d#1?"
BINARIES = ("valkey", "redis")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock("2026-02-07T09:04:00Z")


def engine_catches_up(url: str, clock: FakeClock, **options: Any) -> None:
    """The engine leads, advances and commits over a connection to this place."""
    first = Beat(url, clock, ENTRIES, **options)
    assert first.tick()
    first.engine.resign()
    clock.advance(hours=3)
    second = Beat(url, clock, ENTRIES, **options)

    assert second.tick()
    assert second.dispatched("etl") == [TEN, ELEVEN, NOON]
    for beat in (first, second):
        beat.client.close()


def sent(client: redis.Redis) -> list[str]:
    """The slots of the messages in the queue, oldest first."""
    found: Any = client.lrange("celery", 0, -1)
    return [json.loads(message)["headers"]["scheduled_time"] for message in reversed(found)]


def send_an_hour(scheduler: Scheduler, clock: FakeClock) -> None:
    """Lead, and send the slot of ten o'clock."""
    scheduler.tick()
    clock.set(TEN)
    scheduler.tick()


def lines(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == level]


# -- addresses -----------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=BINARIES)
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp(request.param)
    with a_server(folder, kind=request.param, unixsocket=folder / "s.sock") as server:
        yield server


@pytest.fixture
def server(running: Server) -> Server:
    """An empty server that listens on a port and on a socket."""
    with running.admin() as client:
        client.flushall()
    return running


ADDRESSES = {
    "a port": lambda server: server.url(),
    "another database": lambda server: server.url(db=1),
    "kombu's name of a socket": lambda server: f"redis+socket://{server.folder}/s.sock?virtual_host=1",
    "redis-py's name of a socket": lambda server: f"unix://{server.folder}/s.sock?db=1",
}


@pytest.mark.parametrize("address", ADDRESSES)
def test_the_engine_works_at_every_kind_of_address(server: Server, clock: FakeClock, address: str) -> None:
    engine_catches_up(ADDRESSES[address](server), clock)


@pytest.mark.parametrize("address", ADDRESSES)
def test_the_scheduler_sends_in_one_step_at_every_kind_of_address(
    server: Server, clock: FakeClock, address: str
) -> None:
    url = ADDRESSES[address](server)
    # kombu does not know redis-py's name of a socket, so the broker is in another database there.
    conf = {"broker_url": server.url(db=1), "catchup_redis_url": url} if url.startswith("unix") else {}
    with a_scheduler(url, clock, **conf) as scheduler:
        send_an_hour(scheduler, clock)

        assert scheduler._work is not None
        assert scheduler._work.sender.mode is Mode.ATOMIC
        with server.admin(db=0 if address == "a port" else 1) as client:
            assert sent(client) == [TEN]


# -- logins --------------------------------------------------------------------------------------

LOGINS = {"a password": ("", ODD), "a user": ("a@b:c/d%e#f", ODD)}


@contextmanager
def a_login(server: Server, user: str, password: str) -> Iterator[None]:
    """Nobody else gets in meanwhile."""
    with server.admin() as admin:
        rights = ("resetpass", f">{password}", "~*", "&*", "+@all")
        admin.execute_command("ACL", "SETUSER", user or "default", "on", *rights)
        if user:
            admin.execute_command("ACL", "SETUSER", "default", "resetpass", "off")
        try:
            yield
        finally:
            admin.execute_command("ACL", "SETUSER", "default", "on", "nopass")


def with_login(url: str, user: str, password: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{quote(user, safe='')}:{quote(password, safe='')}@{rest}"


@pytest.mark.parametrize("login", LOGINS)
@pytest.mark.parametrize("address", ADDRESSES)
def test_a_login_may_have_any_characters(server: Server, clock: FakeClock, address: str, login: str) -> None:
    with a_login(server, *LOGINS[login]):
        engine_catches_up(with_login(ADDRESSES[address](server), *LOGINS[login]), clock)


@pytest.mark.parametrize("login", LOGINS)
@pytest.mark.parametrize("address", ["a port", "kombu's name of a socket"])
def test_the_broker_takes_the_same_login_from_the_same_url(
    server: Server, clock: FakeClock, address: str, login: str
) -> None:
    url = with_login(ADDRESSES[address](server), *LOGINS[login])
    with a_login(server, *LOGINS[login]), a_scheduler(url, clock) as scheduler:
        send_an_hour(scheduler, clock)

        assert scheduler._work is not None
        assert sent(scheduler._work.store.client) == [TEN]


# -- credential providers ------------------------------------------------------------------------


class GivenLogin(redis.CredentialProvider):
    """As those of IAM and Entra ID: made without arguments, asked with each connect."""

    def get_credentials(self) -> tuple[str, str]:
        return LOGINS["a user"]


def with_provider(url: str, path: str = f"{__name__}.GivenLogin") -> str:
    return f"{url}{'&' if '?' in url else '?'}credential_provider={path}"


@pytest.mark.parametrize("address", ADDRESSES)
def test_a_credential_provider_gives_the_login(server: Server, clock: FakeClock, address: str) -> None:
    with a_login(server, *LOGINS["a user"]):
        engine_catches_up(with_provider(ADDRESSES[address](server)), clock)


@pytest.mark.skipif(not hasattr(kombu.Connection(), "credential_provider"), reason="kombu 5.5 has none")
def test_the_brokers_credential_provider_is_the_stores_too(server: Server, clock: FakeClock) -> None:
    url = with_provider(server.url())
    with a_login(server, *LOGINS["a user"]), a_scheduler(url, clock) as scheduler:
        send_an_hour(scheduler, clock)

        assert scheduler._work is not None
        assert scheduler._work.sender.mode is Mode.ATOMIC
        assert sent(scheduler._work.store.client) == [TEN]


def test_sentinels_and_a_login_in_the_url_leave_the_login_to_the_provider() -> None:
    url = with_provider("sentinel://u:secret@a:1/0")
    with connect(url, sentinel_options={"master_name": MASTER}) as client:
        options = client.connection_pool.connection_kwargs

    assert type(options["credential_provider"]).__name__ == "GivenLogin"
    assert not {"username", "password"} & options.keys()


@pytest.mark.parametrize(
    "path",
    [
        "nowhere.Provider",
        "Provider",
        "redis.NoSuch",
        "redis.credentials.UsernamePasswordCredentialProvider.x",
    ],
)
def test_a_provider_that_cannot_be_loaded_is_named(path: str) -> None:
    with pytest.raises(ValueError, match=f"'{path}' cannot be loaded"):
        connect(with_provider("redis://localhost", path))


def test_a_class_that_is_not_a_provider_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"expected a subclass of redis.CredentialProvider, got 'builtins.dict'"
    ):
        connect(with_provider("redis://localhost", "builtins.dict"))


# -- several brokers -----------------------------------------------------------------------------


@pytest.mark.parametrize("separated", [True, False], ids=["a text", "a list"])
def test_messages_go_to_the_next_broker_when_the_first_is_down(
    server: Server, clock: FakeClock, separated: bool, redis_url: str
) -> None:
    urls = ["redis://127.0.0.1:1/0", server.url()]
    conf = {"broker_url": ";".join(urls) if separated else urls, "catchup_redis_url": redis_url}
    with a_scheduler(redis_url, clock, **conf) as scheduler:
        send_an_hour(scheduler, clock)

    with server.admin() as client:
        assert sent(client) == [TEN]


# -- TLS -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def secure(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with a_tls_server(tmp_path_factory.mktemp("secure"), authority) as server:
        yield server


@pytest.fixture
def emptied(secure: Server, authority: Authority) -> Server:
    """A server that speaks TLS, and has nothing stored."""
    with secure.admin(ssl=True, ssl_ca_certs=str(authority.certificate)) as client:
        client.flushall()
    return secure


def test_a_verified_certificate_lets_everything_work(
    emptied: Server, authority: Authority, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    url = emptied.url(options=f"ssl_ca_certs={authority.certificate}")
    with a_scheduler(url, clock) as scheduler:
        send_an_hour(scheduler, clock)

        assert scheduler._work is not None
        assert scheduler._work.sender.mode is Mode.ATOMIC
        assert sent(scheduler._work.store.client) == [TEN]
    assert lines(caplog, logging.WARNING) == lines(caplog, logging.ERROR) == []


def test_the_settings_of_the_brokers_tls_are_the_stores_too(
    emptied: Server, authority: Authority, clock: FakeClock
) -> None:
    plain_url = f"redis://127.0.0.1:{emptied.port}/0"
    with a_scheduler(
        plain_url, clock, broker_use_ssl={"ssl_ca_certs": str(authority.certificate)}
    ) as scheduler:
        send_an_hour(scheduler, clock)

        with emptied.admin(ssl=True, ssl_ca_certs=str(authority.certificate)) as client:
            assert sent(client) == [TEN]


def refused(url: str, clock: FakeClock, caplog: pytest.LogCaptureFixture) -> str:
    """What a beat says of a place that it does not trust; it waits, and nothing is sent."""
    with a_scheduler(url, clock) as scheduler:
        assert scheduler.tick() > 0.5
        assert scheduler.tick() > 0.5
    (line,) = lines(caplog, logging.ERROR)
    return line


def test_a_certificate_of_an_unknown_authority_is_refused(
    secure: Server, clock: FakeClock, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    other = Authority(tmp_path / "other")

    assert "name its authority with ssl_ca_certs" in refused(
        secure.url(options=f"ssl_ca_certs={other.certificate}"), clock, caplog
    )


def test_without_a_named_authority_those_of_the_system_count(
    secure: Server, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    assert "no known authority has signed" in refused(secure.url(), clock, caplog)


@pytest.mark.parametrize(
    ("flaw", "sentence"),
    [
        ({"days": -1}, "the server's certificate has expired; renew it"),
        ({"host": "DNS:redis.example.com"}, "the certificate is for another host"),
        ({"host": "IP:127.0.0.2"}, "the certificate is for another host"),
    ],
    ids=["expired", "another name", "another address"],
)
def test_a_certificate_that_is_not_right_is_refused(
    authority: Authority,
    clock: FakeClock,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
    flaw: dict[str, Any],
    sentence: str,
) -> None:
    certificate = authority.signed(f"flawed{len(list(authority.folder.iterdir()))}", **flaw)
    with a_tls_server(tmp_path, authority, certificate=certificate) as server:
        url = server.url(options=f"ssl_ca_certs={authority.certificate}")

        assert sentence in refused(url, clock, caplog)


@pytest.mark.parametrize("spelling", ["none", "CERT_NONE"])
def test_verification_can_be_given_up_and_that_is_a_warning(
    emptied: Server, clock: FakeClock, caplog: pytest.LogCaptureFixture, spelling: str
) -> None:
    with a_scheduler(emptied.url(options=f"ssl_cert_reqs={spelling}"), clock) as scheduler:
        send_an_hour(scheduler, clock)

        assert scheduler._work is not None
        assert sent(scheduler._work.store.client) == [TEN]
    (warning,) = lines(caplog, logging.WARNING)
    assert warning.startswith('msg="Redis is not verified" detail="ssl_cert_reqs=none: ')


def test_a_host_name_that_is_not_checked_is_a_warning(
    authority: Authority, clock: FakeClock, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    certificate = authority.signed("elsewhere", host="DNS:redis.example.com")
    with a_tls_server(tmp_path, authority, certificate=certificate) as server:
        options = f"ssl_ca_certs={authority.certificate}&ssl_check_hostname=false"
        with a_scheduler(server.url(options=options), clock) as scheduler:
            scheduler.tick()

            assert scheduler._work is not None
            assert scheduler._work.engine.leading
    (warning,) = lines(caplog, logging.WARNING)
    assert "ssl_check_hostname=false" in warning


def test_a_server_that_wants_a_certificate_gets_ours(
    authority: Authority, clock: FakeClock, tmp_path: Path
) -> None:
    certificate, key = authority.signed("client")
    with a_tls_server(tmp_path, authority, tls_auth_clients="yes") as server:
        ours = f"ssl_ca_certs={authority.certificate}&ssl_certfile={certificate}&ssl_keyfile={key}"

        engine_catches_up(server.url(options=ours), clock)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("ssl_ca_certs=/nowhere/ca.pem", "a file of the ssl_ options of the URL is missing"),
        (f"ssl_ca_certs={__file__}", "a certificate file is invalid"),
    ],
    ids=["missing", "no certificate"],
)
def test_a_certificate_file_that_cannot_be_read_is_named_as_the_reason(
    secure: Server, clock: FakeClock, caplog: pytest.LogCaptureFixture, options: str, sentence: str
) -> None:
    assert sentence in refused(secure.url(options=options), clock, caplog)


def test_tls_to_a_server_without_it_is_explained(
    server: Server, clock: FakeClock, caplog: pytest.LogCaptureFixture, short_timeouts: None
) -> None:
    url = server.url().replace("redis://", "rediss://")

    assert "the server or the network does not answer" in refused(url, clock, caplog)


def test_a_server_with_tls_refuses_a_client_without(
    secure: Server, clock: FakeClock, caplog: pytest.LogCaptureFixture, short_timeouts: None
) -> None:
    url = secure.url().replace("rediss://", "redis://")

    assert "write rediss:// if it requires TLS" in refused(url, clock, caplog)


# -- Sentinel ------------------------------------------------------------------------------------


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    servers = Watched(tmp_path)
    try:
        servers.start()
        yield servers
    finally:
        servers.kill()


def test_after_a_fail_over_the_beat_goes_on_and_nothing_replicated_is_lost(
    watched: Watched, clock: FakeClock
) -> None:
    longest = 0.0

    def ticked() -> bool:
        nonlocal longest
        begun = time.monotonic()
        scheduler.tick()
        longest = max(longest, time.monotonic() - begun)
        with suppress(RedisError), watched.replica.admin() as client:
            return sent(client) == [TEN, ELEVEN]
        return False

    with a_scheduler(watched.url, clock, broker_transport_options={"master_name": MASTER}) as scheduler:
        send_an_hour(scheduler, clock)
        assert scheduler._work is not None
        assert scheduler._work.sender.mode is Mode.ATOMIC
        watched.all_replicated()

        watched.primary.kill()
        clock.set(ELEVEN)
        until(ticked, what="the slot of eleven o'clock at the new primary")

        with watched.replica.admin() as client:
            runs: Any = client.hlen(Keys("proj").ledger)
    assert runs == 2
    assert longest < 2 * TIMEOUT + SLACK


def test_a_sentinel_that_is_dead_costs_its_share_of_the_time_only(watched: Watched, clock: FakeClock) -> None:
    with a_silent_place() as silent:
        url = f"sentinel://127.0.0.1:{silent};{watched.url}"
        client = connect(url, sentinel_options={"master_name": MASTER})

        begun = time.monotonic()
        client.ping()
        first = time.monotonic() - begun
        client.connection_pool.disconnect()
        begun = time.monotonic()
        client.ping()
        second = time.monotonic() - begun

        client.close()
    assert first < TIMEOUT / 2 + SLACK
    assert second < SLACK  # the one that answered is asked first from then on


# -- Redis Cluster -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    nodes = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        nodes.start()
        yield nodes
    finally:
        nodes.kill()


def test_the_state_may_be_in_a_cluster_whichever_node_is_named(cluster: Cluster, clock: FakeClock) -> None:
    for node in cluster.nodes:
        clock.set("2026-02-07T09:04:00Z")
        engine_catches_up(node.url(), clock, broker=Broker(atomic=False))
        with cluster.owner(Keys(NAMESPACE).meta).admin() as client:
            client.flushall()


def test_a_pipeline_finds_the_node_too(cluster: Cluster) -> None:
    for node in cluster.nodes:
        with connect(node.url()) as client, client.pipeline() as pipe:
            pipe.hset("{catchup:here}:meta", "schema", 1)
            pipe.hget("{catchup:here}:meta", "schema")

            assert pipe.execute()[1] == b"1"


def test_keys_that_move_to_another_node_are_followed(cluster: Cluster, clock: FakeClock) -> None:
    broker, meta = Broker(atomic=False), Keys(NAMESPACE).meta
    beat = Beat(cluster.nodes[0].url(), clock, ENTRIES, broker=broker)
    beat.tick()
    clock.set(TEN)
    beat.tick()

    here = cluster.owner(meta)
    cluster.move(meta, to=next(node for node in cluster.nodes if node is not here))
    clock.set(ELEVEN)
    beat.tick()
    beat.tick()

    assert cluster.owner(meta) is not here
    assert broker.published == [TEN, ELEVEN]
    with cluster.owner(meta).admin() as client:
        client.flushall()
    beat.client.close()


def test_a_node_that_dies_is_waited_for(
    cluster: Cluster, redis_url: str, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    with a_scheduler(redis_url, clock, catchup_redis_url=cluster.nodes[0].url()) as scheduler:
        send_an_hour(scheduler, clock)
        scheduler.tick()
        assert scheduler._work is not None
        assert scheduler._work.sender.mode is Mode.OUTBOX
        node = cluster.owner(Keys("proj").meta)

        node.kill()
        clock.set(ELEVEN)
        assert scheduler.tick() > 0.5
        assert scheduler.tick() > 0.5
        node.start()
        until(cluster.agrees, what="a whole cluster")
        scheduler.tick()
        scheduler.tick()

        with redis.Redis.from_url(redis_url) as client:
            assert sent(client) == [TEN, ELEVEN]
    assert len(lines(caplog, logging.ERROR)) == 1


# -- networks that fall silent -------------------------------------------------------------------

SHORT = 0.4  # seconds, in place of the real time-out


@pytest.fixture
def short_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use time-outs that a test can wait for."""
    monkeypatch.setattr(connection, "TIMEOUT", SHORT)


@contextmanager
def a_silent_place() -> Iterator[int]:
    """A port that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@contextmanager
def a_black_hole() -> Iterator[int]:
    """A port that does not even refuse: its queue of callers is full."""
    with socket.socket() as listener, ExitingCallers() as callers:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        callers.fill(port)
        yield port


class ExitingCallers:
    """Those who wait in the queue."""

    def __init__(self) -> None:
        self.sockets: list[socket.socket] = []

    def __enter__(self) -> ExitingCallers:
        return self

    def __exit__(self, *_: object) -> None:
        for caller in self.sockets:
            caller.close()

    def fill(self, port: int) -> None:
        for _ in range(8):
            caller = socket.socket()
            caller.setblocking(False)
            caller.connect_ex(("127.0.0.1", port))
            self.sockets.append(caller)


def seconds_of(call: Callable[[], Any]) -> float:
    begun = time.monotonic()
    with pytest.raises(RedisError):
        call()
    return time.monotonic() - begun


@pytest.mark.parametrize("place", [a_silent_place, a_black_hole])
def test_a_place_that_never_answers_costs_one_time_out(place: Callable[[], Any]) -> None:
    with place() as port, connect(f"redis://127.0.0.1:{port}/0") as client:
        assert TIMEOUT - SLACK < seconds_of(client.ping) < TIMEOUT + SLACK


@pytest.mark.parametrize("url", ["rediss://127.0.0.1:{}/0", "redis://:pw@127.0.0.1:{}/1"])
def test_neither_a_handshake_nor_a_login_hangs(url: str, short_timeouts: None) -> None:
    with a_silent_place() as port, connect(url.format(port)) as client:
        assert seconds_of(client.ping) < SHORT + SLACK


def test_a_socket_that_never_answers_costs_one_time_out(tmp_path: Path, short_timeouts: None) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        with connect(f"unix://{tmp_path}/s") as client:
            assert seconds_of(client.ping) < SHORT + SLACK


@pytest.mark.parametrize("failure", ["silence", "mute"])
def test_a_beat_whose_network_dies_says_so_in_time_and_goes_on_when_it_is_back(
    redis_url: str, clock: FakeClock, short_timeouts: None, caplog: pytest.LogCaptureFixture, failure: str
) -> None:
    port = int(redis_url.rpartition(":")[2].partition("/")[0])
    with (
        Proxy("127.0.0.1", port) as proxy,
        redis.Redis.from_url(redis_url) as client,
        a_scheduler(f"redis://127.0.0.1:{proxy.port}/0", clock) as scheduler,
    ):
        send_an_hour(scheduler, clock)

        getattr(proxy, failure)()
        clock.set(ELEVEN)
        begun = time.monotonic()
        waits = [scheduler.tick(), scheduler.tick()]
        taken = time.monotonic() - begun
        proxy.mend()
        scheduler.tick()
        scheduler.tick()

        assert sent(client) == [TEN, ELEVEN]
    assert min(waits) > 0.5
    assert taken < 2 * (SHORT + SLACK)
    (line,) = lines(caplog, logging.ERROR)
    assert "the server or the network does not answer" in line


def test_a_commit_whose_reply_is_lost_is_not_made_twice(
    redis_url: str, clock: FakeClock, short_timeouts: None
) -> None:
    port = int(redis_url.rpartition(":")[2].partition("/")[0])
    with Proxy("127.0.0.1", port) as proxy:
        beat = Beat(f"redis://127.0.0.1:{proxy.port}/0", clock, ENTRIES)
        beat.tick()
        clock.set(TEN)
        beat.tick()  # the server knows the script from now on
        clock.set(ELEVEN)
        now = beat.engine.now()
        assert beat.engine.lead(now)

        proxy.mute()
        with pytest.raises(RedisError):
            beat.engine.advance(now)
        proxy.mend()
        executed = beat.sent()
        for _ in range(3):
            beat.tick()

        assert executed == beat.sent() == [TEN, ELEVEN]
        beat.client.close()


# -- secrets -------------------------------------------------------------------------------------

FAILING = {
    "refused": "redis://user:{}@127.0.0.1:1/0",
    "no such socket": "redis+socket://user:{}@/nowhere/s.sock?virtual_host=0",
    "TLS": "rediss://user:{}@127.0.0.1:1/0?ssl_password={}",
    "Sentinels": "sentinel://user:{}@127.0.0.1:1;sentinel://user:{}@127.0.0.1:2/0",
}


@pytest.mark.parametrize("kind", FAILING)
def test_no_password_is_shown_when_a_connect_fails(
    clock: FakeClock, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    caplog.set_level(logging.DEBUG)
    url = FAILING[kind].replace("{}", CANARY)
    with a_scheduler(
        url, clock, catchup_redis_url=url, broker_transport_options={"master_name": MASTER}
    ) as scheduler:
        scheduler.tick()
        scheduler.tick()
        work = scheduler._work
        assert work is not None
        shown = [
            scheduler.info,
            *map(repr, (scheduler, work, work.store, work.store.client, work.store.client.connection_pool)),
            *map(repr, (work.states, work.engine, read_settings(scheduler.app))),
            *(record.getMessage() + str(record.exc_text) for record in caplog.records),
        ]

    assert len(lines(caplog, logging.ERROR)) == 1
    assert not [text for text in shown if CANARY in text]
    assert "***" in scheduler.info


def test_no_password_is_shown_when_it_is_wrong(
    server: Server,
    clock: FakeClock,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    url = server.url(user="user", password=CANARY)
    with server.admin() as admin:
        admin.execute_command("ACL", "SETUSER", "user", "on", ">right", "~*", "+@all")
        with pytest.raises(SystemExit), a_scheduler(url, clock) as scheduler:
            scheduler.tick()
        admin.execute_command("ACL", "DELUSER", "user")

    told = capsys.readouterr().err
    assert "authentication failed; correct user name or password in the URL" in told
    assert CANARY not in told
    assert not [record for record in caplog.records if CANARY in record.getMessage()]


def test_a_worker_does_not_tell_the_url_when_it_is_asked_for_its_settings() -> None:
    app = Celery("proj", broker="memory://", set_as_current=False)
    app.conf.update(catchup_redis_url=f"redis://:{CANARY}@localhost/0", CATCHUP_NAMESPACE="mine")
    install(app)

    shown = app.conf.table(with_defaults=True, censored=True)

    assert shown["catchup_redis_url"] == "*" * 8
    assert CANARY not in str(shown)
    assert app.conf.catchup_redis_url.endswith("@localhost/0")
    app.close()


def test_celery_report_does_not_show_the_url(tmp_path: Path) -> None:
    (tmp_path / "proj.py").write_text(
        "from celery import Celery\n"
        "app = Celery('proj', broker='redis://')\n"
        f"app.conf.catchup_redis_url = 'redis://user:{CANARY}@localhost/0'\n"
    )
    installed(tmp_path)
    paths = os.pathsep.join([str(ROOT), str(tmp_path)])

    done = subprocess.run(
        [sys.executable, "-m", "celery", "-A", "proj", "report"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=True,
    )

    assert "catchup_redis_url: '********'" in done.stdout
    assert CANARY not in done.stdout + done.stderr


def installed(folder: Path) -> None:
    """Let Celery find our commands as if the package had been installed; perhaps it was not."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    information = folder / "celery_catchup-0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 0\n")
    commands = project["entry-points"]["celery.commands"]
    (information / "entry_points.txt").write_text(
        "[celery.commands]\n" + "".join(f"{name} = {place}\n" for name, place in commands.items())
    )


# -- what cannot work ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    ["redis://a..b/0", f"redis://localhost:{CANARY}/0", f"sentinel://localhost:{CANARY}/0", "unix:///s?db=x"],
)
def test_a_url_that_cannot_work_is_refused_before_anything_is_sent(url: str) -> None:
    with pytest.raises(ValueError, match="host, port or database") as caught:
        connect(url, sentinel_options={"master_name": MASTER})

    assert CANARY not in str(caught.value)


def test_sentinels_without_the_name_of_a_primary_are_refused() -> None:
    with pytest.raises(ValueError, match="set master_name in broker_transport_options"):
        connect("sentinel://localhost:1/0")


@pytest.mark.parametrize(
    ("url", "db"),
    [
        ("sentinel://a:1/2;sentinel://b:1", 2),
        ("sentinel://a:1;sentinel://b:1/2", 2),
        ("sentinel://a:1;b:1/2", 2),
        ("sentinel://a:1;sentinel://b", 0),
    ],
)
def test_any_of_the_sentinels_may_name_the_database(url: str, db: int) -> None:
    with connect(url, sentinel_options={"master_name": MASTER}) as client:
        assert client.connection_pool.connection_kwargs["db"] == db


def test_an_unknown_error_is_told_by_its_kind() -> None:
    assert explain(KeyError("x")) == "KeyError: 'x'"


def test_the_store_of_an_app_with_brokers_sentinels_over_tls(authority: Authority) -> None:
    app = Celery("proj", broker="sentinel://a:1;sentinel://b:1/3", set_as_current=False)
    app.conf.update(
        broker_transport_options={"master_name": MASTER},
        broker_use_ssl={"ssl_ca_certs": str(authority.certificate)},
    )

    store = open_store(app)

    options = store.client.connection_pool.connection_kwargs
    assert store.db == 3
    assert options["ssl_ca_certs"] == str(authority.certificate)
    assert options["ssl_check_hostname"] is True
    store.close()
    app.close()
