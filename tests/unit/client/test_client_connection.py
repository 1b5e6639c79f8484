"""One connection: negotiation, order, time-outs, ends."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from martlet.base.addresses import Address
from martlet.base.errors import ApiError, ErrorCode
from martlet.client.apis import INIT_PRODUCER_ID, METADATA
from martlet.client.connection import Connection, VersionRange
from martlet.client.errors import ConnectionFailed, ConnectionLost, RequestTimedOut
from martlet.wire import message_codec
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from martlet.wire.messages.metadata import MetadataRequest
from tests.unit.client.fake_broker import HANG_UP, SILENCE, FakeBroker, Reply, impatient


@pytest.fixture
async def broker() -> AsyncIterator[FakeBroker]:
    async with FakeBroker() as started:
        yield started


async def test_the_newest_common_version_is_used(broker: FakeBroker) -> None:
    broker.versions[ApiKey.METADATA] = (0, 9)
    async with Connection(broker.address, impatient()) as connection:
        assert connection.versions[ApiKey.METADATA] == VersionRange(0, 9)
        await connection.call(METADATA, MetadataRequest(topics=None))
    assert [(asked.api_key, asked.version) for asked in broker.requests] == [(18, 4), (3, 9)]


@pytest.mark.parametrize("newest", [0, 2, 3])
async def test_a_broker_that_refuses_our_api_versions_is_asked_in_its_own(broker: FakeBroker, newest: int) -> None:
    broker.versions[ApiKey.API_VERSIONS] = (0, newest)
    async with Connection(broker.address, impatient()) as connection:
        assert connection.versions[ApiKey.PRODUCE] == VersionRange(0, 13)
    assert [asked.version for asked in broker.requests] == [4, newest]


async def test_an_api_that_the_broker_lacks_is_named(broker: FakeBroker) -> None:
    del broker.versions[ApiKey.INIT_PRODUCER_ID]
    async with Connection(broker.address, impatient()) as connection:
        with pytest.raises(ApiError, match="does not offer INIT_PRODUCER_ID") as caught:
            await connection.call(INIT_PRODUCER_ID, InitProducerIdRequest())
    assert caught.value.code == ErrorCode.UNSUPPORTED_VERSION


async def test_versions_that_do_not_overlap_are_named(broker: FakeBroker) -> None:
    broker.versions[ApiKey.METADATA] = (0, 3)
    async with Connection(broker.address, impatient()) as connection:
        with pytest.raises(ApiError, match="speaks METADATA 0 to 3, this client 4 to 13"):
            await connection.call(METADATA, MetadataRequest())


async def test_pipelined_requests_get_their_own_answers(broker: FakeBroker) -> None:
    def answer(request: InitProducerIdRequest, version: int) -> bytes:
        return message_codec.encode(InitProducerIdResponse(producer_id=request.transaction_timeout_ms), version)

    broker.scripts[ApiKey.INIT_PRODUCER_ID] = answer
    async with Connection(broker.address, impatient()) as connection:
        calls = [
            connection.call(INIT_PRODUCER_ID, InitProducerIdRequest(transaction_timeout_ms=number))
            for number in range(100)
        ]
        answers = await asyncio.gather(*calls)
    assert [answer.producer_id for answer in answers] == list(range(100))


async def test_a_cancelled_caller_does_not_shift_the_answers_of_the_others(broker: FakeBroker) -> None:
    released = asyncio.Event()

    async def answer(request: InitProducerIdRequest, version: int) -> Reply:
        await released.wait()
        return message_codec.encode(InitProducerIdResponse(producer_id=request.transaction_timeout_ms), version)

    broker.scripts[ApiKey.INIT_PRODUCER_ID] = answer
    async with Connection(broker.address, impatient()) as connection:
        first, second = (
            asyncio.create_task(connection.call(INIT_PRODUCER_ID, InitProducerIdRequest(transaction_timeout_ms=number)))
            for number in (1, 2)
        )
        await asyncio.sleep(0.01)
        first.cancel()
        released.set()
        assert (await second).producer_id == 2
        assert first.cancelled()


async def test_a_request_without_an_answer_times_out_and_ends_the_connection(broker: FakeBroker) -> None:
    broker.scripts[ApiKey.METADATA] = lambda request, version: SILENCE
    async with Connection(broker.address, impatient()) as connection:
        behind = asyncio.create_task(connection.call(METADATA, MetadataRequest(), timeout_ms=10_000))
        with pytest.raises(RequestTimedOut, match="did not answer METADATA within 50 ms"):
            await connection.call(METADATA, MetadataRequest(), timeout_ms=50)
        with pytest.raises(RequestTimedOut):
            await behind
        assert not connection.is_open


async def test_a_connection_cut_by_the_broker_fails_all_who_wait(broker: FakeBroker) -> None:
    broker.scripts[ApiKey.METADATA] = lambda request, version: HANG_UP
    async with Connection(broker.address, impatient()) as connection:
        results = await asyncio.gather(
            *(connection.call(METADATA, MetadataRequest()) for _ in range(3)), return_exceptions=True
        )
        assert [type(result) for result in results] == [ConnectionLost] * 3
        with pytest.raises(ConnectionLost):
            await connection.call(METADATA, MetadataRequest())


async def test_an_answer_out_of_turn_ends_the_connection() -> None:
    async def answer_wrongly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(b"\0\0\0\x0a" + (99).to_bytes(4, "big") + bytes(6))
        await writer.drain()
        await reader.read(1000)
        writer.close()

    server = await asyncio.start_server(answer_wrongly, "127.0.0.1", 0)
    async with server:
        address = Address("127.0.0.1", server.sockets[0].getsockname()[1])
        with pytest.raises(ConnectionFailed, match=r"not a Kafka listener: its answer makes no sense$"):
            await Connection(address, impatient()).start()


async def test_a_server_that_speaks_http_is_recognised() -> None:
    async def speak_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(speak_http, "127.0.0.1", 0)
    async with server:
        address = Address("127.0.0.1", server.sockets[0].getsockname()[1])
        with pytest.raises(ConnectionFailed, match=r"not a Kafka listener: it sent an HTTP response$"):
            await Connection(address, impatient()).start()


async def test_a_server_that_says_nothing_is_given_up() -> None:
    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    async with server:
        address = Address("127.0.0.1", server.sockets[0].getsockname()[1])
        with pytest.raises(ConnectionFailed, match="connected, but no answer in time; is it a broker"):
            await Connection(address, impatient(connect_timeout_ms=50)).start()


async def test_a_refused_connect_says_so_in_plain_words(broker: FakeBroker) -> None:
    await broker.stop()
    with pytest.raises(ConnectionFailed) as caught:
        await Connection(broker.address, impatient()).start()
    assert str(caught.value) == f"{broker.address}: connection refused"


async def test_an_unknown_host_says_so_in_plain_words() -> None:
    with pytest.raises(ConnectionFailed, match=r"no-such-host.invalid:9092: "):
        await Connection(Address("no-such-host.invalid", 9092), impatient()).start()


async def test_an_answer_that_makes_no_sense_ends_the_connection(broker: FakeBroker) -> None:
    broker.scripts[ApiKey.METADATA] = lambda request, version: b"\xff" * 40
    async with Connection(broker.address, impatient()) as connection:
        with pytest.raises(ConnectionLost, match="broke the protocol"):
            await connection.call(METADATA, MetadataRequest())
        assert not connection.is_open
