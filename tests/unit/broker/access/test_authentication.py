"""Authentication in a broker: what listeners offer, and what failures cost."""

import asyncio
import time

from martlet.base.addresses import Address
from martlet.base.clock import SystemClock
from martlet.base.randomness import SystemRandomness
from martlet.broker.access.audit import Audit
from martlet.broker.access.authentication import Authentication, AuthenticationOptions
from martlet.broker.access.users import Users
from martlet.broker.ground.listeners import ListenerOptions, ListenerProtocol
from martlet.broker.ground.request import Link
from martlet.security.errors import AuthenticationRefused
from martlet.security.sasl import Mechanism
from tests.unit.cluster.images import FollowedStore


def authentication(*mechanisms: Mechanism) -> Authentication:
    clock = SystemClock()
    options = AuthenticationOptions(mechanisms=mechanisms, broker_listener="brokers")
    return Authentication(options, Users(FollowedStore().image), clock, SystemRandomness(), Audit(clock))


def listener(name: str, protocol: ListenerProtocol) -> ListenerOptions:
    return ListenerOptions(name, Address("127.0.0.1", 9092), protocol=protocol)


def test_passwords_in_clear_are_taken_over_tls_only() -> None:
    both = authentication(Mechanism.PLAIN, Mechanism.SCRAM_SHA_256)
    assert both.offered(listener("a", ListenerProtocol.SASL_PLAIN)) == (Mechanism.SCRAM_SHA_256,)
    assert both.offered(listener("a", ListenerProtocol.SASL_TLS)) == (Mechanism.PLAIN, Mechanism.SCRAM_SHA_256)


def test_the_listener_for_brokers_always_offers_what_brokers_use() -> None:
    plain = authentication(Mechanism.SCRAM_SHA_256)
    offered = plain.offered(listener("brokers", ListenerProtocol.SASL_PLAIN))
    assert offered == (Mechanism.SCRAM_SHA_256, Mechanism.SCRAM_SHA_512)


async def test_each_failure_from_an_address_makes_the_next_answer_later() -> None:
    who = authentication(Mechanism.SCRAM_SHA_256)
    seconds = []
    for host in ("10.0.0.9", "10.0.0.9", "10.0.0.8"):
        begun = time.monotonic()
        await who.refused(Link(Address(host, 5), Address("10.0.0.1", 9092)), AuthenticationRefused("wrong"))
        seconds.append(time.monotonic() - begun)
    assert [round(taken, 1) for taken in seconds] == [0.3, 0.4, 0.3]


async def test_beyond_a_bound_refusals_are_not_kept_waiting() -> None:
    who = authentication(Mechanism.SCRAM_SHA_256)
    links = [Link(Address(f"10.0.{number // 250}.{number % 250}", 5), Address("h", 1)) for number in range(1_001)]
    waiting = [asyncio.create_task(who.refused(link, AuthenticationRefused("wrong"))) for link in links]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert sum(task.done() for task in waiting) == 1
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
