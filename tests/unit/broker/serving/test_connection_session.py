"""A connection whose client has to authenticate, and one whose client has to wait after its answers."""

import asyncio

import pytest

from martlet.base.principals import ANONYMOUS, Principal
from martlet.broker.ground.request import Reply
from martlet.observe.metrics import DropReason
from martlet.wire.api_keys import ApiKey
from tests.unit.broker.serving import test_connection
from tests.unit.broker.serving.test_connection import METADATA, PRODUCE, Bench

ALICE = Principal("User", "alice")
HANDSHAKE, AUTHENTICATE = ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE


def request(api: ApiKey, correlation: int, *, padding: int = 1) -> bytes:
    """With the byte that some headers end with."""
    return test_connection.request(api, correlation, padding=padding)


def _authenticating_bench(principal: Principal = ALICE) -> Bench:
    """Its dispatcher answers everything at once and finds every client to be `principal`."""
    bench = Bench(authenticates=True)

    def answer(reply: Reply) -> None:
        session = bench.dispatcher.links[-1].session
        if reply.header.api_key == AUTHENTICATE:
            session.authenticated(principal)
        elif reply.header.api_key == HANDSHAKE and bench.dispatcher.links[-1].principal == ALICE:
            session.begin_again()
        reply.send((b"",))

    bench.dispatcher.on_start = answer
    return bench


def _log_in(bench: Bench) -> None:
    bench.receive(request(ApiKey.API_VERSIONS, 0) + request(HANDSHAKE, 1) + request(AUTHENTICATE, 2))


def test_requests_of_a_plain_listener_carry_the_anonymous_user_and_the_listeners_name() -> None:
    bench = Bench()
    bench.receive(request(PRODUCE, 0))
    [link] = bench.dispatcher.links
    assert link.principal == ANONYMOUS
    assert link.listener.name == "kafka"


@pytest.mark.parametrize("api", [METADATA, PRODUCE, ApiKey.FETCH])
def test_a_request_before_authentication_closes_the_connection_unserved(api: ApiKey) -> None:
    bench = _authenticating_bench()
    bench.receive(request(ApiKey.API_VERSIONS, 0) + request(api, 1))
    assert bench.transport.closed
    assert [reply.header.correlation_id for reply in bench.dispatcher.started] == [0]
    assert "not authenticated yet" in bench.dispatcher.refusals[0]
    assert bench.dispatcher.metrics.connections_dropped[DropReason.PROTOCOL_VIOLATION] == 1


def test_requests_sent_together_with_the_authentication_are_served_after_it() -> None:
    bench = _authenticating_bench()
    _log_in(bench)
    bench.receive(request(METADATA, 3) + request(PRODUCE, 4))
    assert bench.correlation_ids_sent() == [0, 1, 2, 3, 4]
    assert bench.dispatcher.links[-1].principal == ALICE


def test_requests_behind_an_authentication_that_is_under_way_wait_for_it() -> None:
    bench = Bench(authenticates=True)
    bench.receive(request(AUTHENTICATE, 0) + request(METADATA, 1))
    assert len(bench.dispatcher.started) == 1
    bench.dispatcher.links[0].session.authenticated(ALICE)
    bench.dispatcher.started[0].send((b"",))
    assert len(bench.dispatcher.started) == 2


def test_frames_are_small_until_the_client_is_authenticated() -> None:
    bench = _authenticating_bench()
    bench.receive(request(AUTHENTICATE, 0, padding=65_537))
    assert bench.transport.closed
    bench = _authenticating_bench()
    bench.receive(request(AUTHENTICATE, 0, padding=60_000) + request(PRODUCE, 1, padding=1_000_000))
    assert not bench.transport.closed
    assert bench.correlation_ids_sent() == [0, 1]


def test_a_client_that_does_not_authenticate_in_time_is_cut_off_whatever_it_sends() -> None:
    bench = _authenticating_bench()
    for second in range(12):
        bench.clock.advance(1_000)
        bench.receive(request(ApiKey.API_VERSIONS, second))
        bench.connection.check_deadlines(bench.clock.monotonic_ms())
    assert bench.transport.closed
    assert bench.dispatcher.metrics.connections_dropped[DropReason.STALLED] == 1


def test_a_client_that_has_authenticated_has_no_deadline() -> None:
    bench = _authenticating_bench()
    _log_in(bench)
    bench.clock.advance(60_000)
    bench.connection.check_deadlines(bench.clock.monotonic_ms())
    assert not bench.transport.closed


def test_a_client_may_authenticate_again_as_another_and_its_later_requests_are_that_ones() -> None:
    bench = _authenticating_bench()
    _log_in(bench)
    bench.receive(request(PRODUCE, 3))
    link = bench.dispatcher.links[-1]
    link.session.begin_again()
    link.session.authenticated(Principal("User", "bob"))
    bench.receive(request(PRODUCE, 4))
    assert bench.dispatcher.links[-1].principal == Principal("User", "bob")


def test_other_requests_between_the_steps_of_an_authentication_close_the_connection() -> None:
    bench = _authenticating_bench()
    _log_in(bench)
    bench.receive(request(HANDSHAKE, 3) + request(METADATA, 4))
    assert bench.correlation_ids_sent() == [0, 1, 2, 3]
    assert bench.transport.closed
    assert "authenticating again" in bench.dispatcher.refusals[0]


# --- throttling (KIP-219)


async def test_a_throttled_client_has_its_answer_at_once_and_is_not_read_until_its_time_is_over() -> None:
    bench = Bench()
    bench.dispatcher.wait_ms = 100

    def answer(reply: Reply) -> None:
        assert reply.throttle() == 100
        reply.send((b"",))

    bench.dispatcher.on_start = answer
    bench.receive(request(METADATA, 0) + request(METADATA, 1))
    assert bench.correlation_ids_sent() == [0]
    assert not bench.transport.reading
    await asyncio.sleep(0.05)
    assert not bench.transport.reading
    bench.dispatcher.wait_ms = 0
    bench.dispatcher.on_start = lambda reply: reply.send((b"",))
    await asyncio.sleep(0.1)
    assert bench.correlation_ids_sent() == [0, 1]
    assert bench.transport.reading


async def test_publishes_under_way_are_answered_while_their_client_is_muted() -> None:
    bench = Bench()
    bench.receive(request(PRODUCE, 0) + request(PRODUCE, 1))
    bench.dispatcher.wait_ms = 100
    for reply in bench.dispatcher.started:
        reply.throttle()
        reply.send((b"",))
    bench.receive(request(PRODUCE, 2))
    assert bench.correlation_ids_sent() == [0, 1]
    assert len(bench.dispatcher.started) == 2
    await asyncio.sleep(0.15)
    assert len(bench.dispatcher.started) == 3


async def test_a_muted_connection_is_neither_idle_nor_slow_and_can_be_closed() -> None:
    bench = Bench()
    bench.dispatcher.wait_ms = 100
    bench.receive(request(METADATA, 0) + request(METADATA, 1)[:7])
    bench.dispatcher.started[0].throttle()
    bench.dispatcher.started[0].send((b"",))
    bench.clock.advance(700_000)
    bench.connection.check_deadlines(bench.clock.monotonic_ms())
    assert not bench.transport.closed
    await asyncio.sleep(0.15)
    bench.connection.check_deadlines(bench.clock.monotonic_ms())
    assert not bench.transport.closed, "its time begins again with the end of the mute"
    bench.connection.abort()
    bench.connection.connection_lost(None)
    assert bench.owner.open == 0


async def test_a_connection_that_goes_while_it_is_muted_leaves_no_timer() -> None:
    bench = Bench()
    bench.dispatcher.wait_ms = 50
    bench.receive(request(METADATA, 0))
    bench.dispatcher.started[0].throttle()
    bench.dispatcher.started[0].send((b"",))
    bench.connection.connection_lost(None)
    await asyncio.sleep(0.1)
    assert not bench.transport.reading
