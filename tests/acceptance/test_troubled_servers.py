"""Redis or the broker goes away under a beat: it lives, says so calmly, and nothing is lost or doubled."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from urllib.parse import urlsplit

import pytest

from celery_catchup.testing.embedded_server import EmbeddedServer
from tests import services
from tests.acceptance.messages import Message, RabbitQueue, on_redis
from tests.acceptance.processes import Process, until
from tests.acceptance.proxies import Proxy
from tests.acceptance.sites import Site, instant

A_HANDFUL = 5
OUTAGE = 3.0  # seconds; longer than the time-outs, so that every kind of failure is met
TICKING = {"ticking": {"$every": 1}}
AT_ONCE = {"ticking": {"window": "10m", "overlap_policy": "allow"}}


def complaints(beat: Process) -> list[dict[str, str]]:
    return [line for line in beat.said() if line["level"] not in ("INFO", "DEBUG")]


def check_one_a_second(messages: list[Message]) -> None:
    slots = [instant(message.slot) for message in messages]

    assert [later - slot for slot, later in pairwise(slots)] == [1000] * (len(slots) - 1)


def stock_slots(site: Site) -> list[str]:
    return [message.slot for message in site.messages() if message.entry is None]


def check_calm(beat: Process) -> None:
    assert beat.alive
    assert "Traceback" not in beat.text()
    assert len(complaints(beat)) <= A_HANDFUL, complaints(beat)


# -- Redis, state and broker at once -----------------------------------------------------------


def frozen(server: EmbeddedServer) -> None:
    os.kill(server.pid, signal.SIGSTOP)
    time.sleep(OUTAGE)
    os.kill(server.pid, signal.SIGCONT)


def stopped(server: EmbeddedServer) -> None:
    server.stop()
    time.sleep(OUTAGE)
    server.start()


def crashed(server: EmbeddedServer) -> None:
    server.kill()
    time.sleep(OUTAGE)
    server.start()


@pytest.mark.parametrize("harm", [frozen, stopped, crashed], ids=lambda harm: harm.__name__)
def test_a_beat_outlives_its_redis_and_loses_nothing(
    lasting_site: Site, lasting_server: EmbeddedServer, harm: Callable[[EmbeddedServer], None]
) -> None:
    lasting_site.declare(TICKING | {"stock": {"$every": 1}}, catchup_entries=AT_ONCE)
    beat = lasting_site.leader()
    lasting_site.until_sent(2)

    harm(lasting_server)
    back = time.monotonic()
    sent = len(lasting_site.slots("ticking"))
    until(lambda: len(lasting_site.slots("ticking")) >= sent + OUTAGE + 2, what="slots after the outage")

    print(f"{harm.__name__}: all sent {time.monotonic() - back:.1f} s after it was back")
    check_one_a_second(lasting_site.messages("ticking"))
    stock = until(lambda: stock_slots(lasting_site)[3:] and stock_slots(lasting_site), what="the other entry")
    assert len(set(stock)) == len(stock)
    check_calm(beat)
    assert beat.said("Redis cannot be used")
    assert len(beat.said("Redis cannot be used: over")) == 1


def test_a_beat_waits_for_a_redis_that_is_not_there_yet(
    lasting_site: Site, lasting_server: EmbeddedServer
) -> None:
    lasting_site.declare(TICKING, catchup_entries=AT_ONCE)
    lasting_server.stop()

    beat = lasting_site.beat()
    beat.until_it_says("Redis cannot be used")
    assert beat.alive
    lasting_server.start()
    beat.until_it_says("Leading")
    lasting_site.until_sent(2)

    check_one_a_second(lasting_site.messages("ticking"))
    check_calm(beat)


def test_a_standby_outlives_an_outage_of_redis_too(
    lasting_site: Site, lasting_server: EmbeddedServer
) -> None:
    lasting_site.declare(TICKING, catchup_entries=AT_ONCE, catchup_lease_ttl="3s")
    first, second = lasting_site.leader(), lasting_site.beat()
    second.until_it_says("Standing by")

    stopped(lasting_server)
    sent = len(lasting_site.slots("ticking"))
    until(lambda: len(lasting_site.slots("ticking")) >= sent + OUTAGE + 2, what="slots after the outage")

    check_one_a_second(lasting_site.messages("ticking"))
    check_calm(first)
    check_calm(second)


def test_a_beat_can_be_stopped_while_redis_is_away(
    lasting_site: Site, lasting_server: EmbeddedServer
) -> None:
    lasting_site.declare(TICKING, catchup_entries=AT_ONCE)
    beat = lasting_site.leader()
    os.kill(lasting_server.pid, signal.SIGSTOP)
    beat.until_it_says("Redis cannot be used")

    asked = time.monotonic()
    code = beat.stop()
    os.kill(lasting_server.pid, signal.SIGCONT)

    assert code == 0
    assert time.monotonic() - asked < 6
    assert "Traceback" not in beat.text()


def test_scripts_that_the_server_forgot_are_loaded_again_unseen(site: Site) -> None:
    site.declare(TICKING, catchup_entries=AT_ONCE)
    beat = site.leader()
    site.until_sent(1)

    site.redis.script_flush()
    site.until_sent(3)

    check_one_a_second(site.messages("ticking"))
    assert complaints(beat) == []


# -- the broker alone --------------------------------------------------------------------------


@pytest.fixture
def rabbit_proxy(rabbit_queue: RabbitQueue) -> Iterator[Proxy]:
    """A way to RabbitMQ that can be cut."""
    address = urlsplit(rabbit_queue.url)
    with Proxy(address.hostname or "127.0.0.1", address.port or 5672) as proxy:
        yield proxy


def on_rabbitmq(site: Site, queue: RabbitQueue, proxy: Proxy, **settings: object) -> None:
    site.broker = f"amqp://guest:guest@127.0.0.1:{proxy.port}//"
    site.declare(
        TICKING,
        catchup_entries=AT_ONCE,
        catchup_redis_url=site.url,
        task_default_queue=queue.name,
        **settings,
    )


@pytest.mark.parametrize("harm", ["cut", "silence"])
def test_a_run_whose_broker_is_away_is_published_when_it_is_back(
    site: Site, rabbit_queue: RabbitQueue, rabbit_proxy: Proxy, harm: str
) -> None:
    on_rabbitmq(site, rabbit_queue, rabbit_proxy)
    beat = site.leader()
    until(lambda: len(rabbit_queue) >= 2, what="two messages")

    getattr(rabbit_proxy, harm)()
    beat.until_it_says("Broker cannot be used")
    time.sleep(OUTAGE)
    held = len(rabbit_queue)
    rabbit_proxy.mend()
    until(lambda: len(rabbit_queue) >= held + OUTAGE, what="what was held back")
    until(lambda: not site.redis.zcard(site.keys.outbox), what="an empty outbox")
    beat.until_it_says("Broker cannot be used: over")
    beat.stop()
    messages = rabbit_queue.messages()

    # A publish whose confirmation was lost is repeated: the same task, once more.
    once = list({message.id: message for message in messages}.values())
    assert len(messages) - len(once) <= 1
    check_one_a_second(once)
    assert "Traceback" not in beat.text()
    assert len(complaints(beat)) <= A_HANDFUL


def test_entries_without_a_policy_wait_for_their_broker_calmly_and_run_late(
    site: Site, rabbit_queue: RabbitQueue, rabbit_proxy: Proxy
) -> None:
    on_rabbitmq(site, rabbit_queue, rabbit_proxy)
    stock = {f"stock-{n}": {"schedule": {"$every": 1}, "args": [n]} for n in range(5)}
    site.project["schedule"] = {
        name: {"task": "tests.projects.declared.work", **entry} for name, entry in stock.items()
    }
    site.project["settings"].pop("catchup_entries")
    beat = site.leader()
    until(lambda: len(rabbit_queue) >= 5, what="a message of each")

    rabbit_proxy.cut()
    beat.until_it_says("unreachable")
    time.sleep(OUTAGE)
    held = len(rabbit_queue)
    rabbit_proxy.mend()
    until(lambda: len(rabbit_queue) >= held + 10, what="messages after the outage")
    beat.stop()

    assert {message.args[0] for message in rabbit_queue.messages()[held:]} == set(range(5))
    check_calm_end(beat)


def test_while_the_broker_is_away_slots_are_decided_and_wait_in_the_outbox(
    site: Site, rabbit_queue: RabbitQueue, rabbit_proxy: Proxy
) -> None:
    on_rabbitmq(site, rabbit_queue, rabbit_proxy)
    beat = site.leader()
    until(lambda: len(rabbit_queue) >= 1, what="a message")

    rabbit_proxy.cut()
    until(lambda: site.redis.zcard(site.keys.outbox) >= 4, what="slots in the outbox")
    states = site.states("ticking")

    assert beat.alive
    assert set(states) == {"queued"}


def test_a_leader_whose_broker_is_away_keeps_the_lead(
    site: Site, rabbit_queue: RabbitQueue, rabbit_proxy: Proxy
) -> None:
    on_rabbitmq(site, rabbit_queue, rabbit_proxy, catchup_lease_ttl="3s")
    leader, standby = site.leader(), site.beat()
    standby.until_it_says("Standing by")

    rabbit_proxy.cut()
    until(lambda: site.redis.zcard(site.keys.outbox) >= 9, what="nine slots in the outbox")

    assert "Leading" not in standby.text()
    assert leader.text().count("Leading") == 1


def test_a_broker_that_is_not_there_yet_is_waited_for(
    site: Site, rabbit_queue: RabbitQueue, rabbit_proxy: Proxy
) -> None:
    on_rabbitmq(site, rabbit_queue, rabbit_proxy)
    rabbit_proxy.cut()

    beat = site.beat()
    beat.until_it_says("Broker cannot be used")
    rabbit_proxy.mend()
    until(lambda: len(rabbit_queue) >= 2, what="messages")
    beat.stop()

    check_one_a_second(rabbit_queue.messages())
    assert len(complaints(beat)) <= A_HANDFUL


def test_without_its_state_a_beat_sends_nothing_to_a_healthy_broker(
    lasting_site: Site, lasting_server: EmbeddedServer, rabbit_queue: RabbitQueue
) -> None:
    lasting_site.broker = rabbit_queue.url
    lasting_site.declare(
        TICKING | {"stock": {"$every": 1}},
        catchup_entries=AT_ONCE,
        catchup_redis_url=lasting_site.url,
        task_default_queue=rabbit_queue.name,
    )
    beat = lasting_site.leader()
    until(lambda: len(rabbit_queue) >= 4, what="messages")

    lasting_server.stop()
    beat.until_it_says("Redis cannot be used")
    before = len(rabbit_queue)
    time.sleep(2.5)
    during = len(rabbit_queue)
    lasting_server.start()
    until(lambda: len(rabbit_queue) >= before + 8, what="messages after the outage")
    beat.stop()

    assert during == before
    check_one_a_second([m for m in rabbit_queue.messages() if m.entry == "ticking"])
    check_calm_end(beat)


def check_calm_end(beat: Process) -> None:
    assert "Traceback" not in beat.text()
    assert len(complaints(beat)) <= A_HANDFUL, complaints(beat)


def test_a_redis_broker_on_another_server_may_go_away_too(site: Site) -> None:
    with services.private_server(appendonly=True) as broker:
        site.broker = broker.url()
        site.declare(TICKING, catchup_entries=AT_ONCE, catchup_redis_url=site.url)
        beat = site.leader()
        client = type(site.redis).from_url(broker.url(), decode_responses=True)
        until(lambda: client.llen("celery") >= 2, what="two messages")

        stopped(broker)
        sent = client.llen("celery")
        until(lambda: client.llen("celery") >= sent + OUTAGE + 1, what="what was held back")
        messages = on_redis(client)
        client.close()

    assert beat.alive
    check_one_a_second(messages)
    check_calm_end(beat)
