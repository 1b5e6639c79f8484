"""Queues over the wire, by the client: received, settled with and without a token, by any connection, described."""

import asyncio
from collections.abc import AsyncIterator
from itertools import count

import pytest

from martlet.base.addresses import parse_address
from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import TopicId, TopicPartition
from martlet.client.cluster import Cluster
from martlet.client.queues import Queues, Received, Receiver, Settling, Verdict, message_without_token
from martlet.testing.running_broker import RunningBroker
from martlet.wire.lease_token import read_token
from tests.broker.raw_client import RawClient
from tests.broker.requests import create_topic, publish_values

_numbers = count()


@pytest.fixture
async def cluster(broker: RunningBroker) -> AsyncIterator[Cluster]:
    async with Cluster([parse_address(broker.bootstrap_servers)]) as connected:
        yield connected


@pytest.fixture
def topic(client: RawClient) -> str:
    return create_topic(client, 1)


async def subscribed(cluster: Cluster, topic: str, **settings: str) -> str:
    name = f"subscription-{next(_numbers)}"
    given = {"start": "earliest", **{key.replace("_", "."): value for key, value in settings.items()}}
    await Queues(cluster).create(name, [topic], settings=given)
    return name


async def received(
    cluster: Cluster, name: str, *, holder: str = "ann", most: int = 100, wait_ms: int = 3_000, lease_ms: int = 30_000
) -> list[Received]:
    receiver = Receiver(cluster, name, holder, messages_max=most, lease_ms=lease_ms)
    try:
        return await receiver.receive(wait_ms)
    finally:
        await receiver.aclose()


def values(messages: list[Received]) -> list[bytes | None]:
    return [message.record.value for message in messages]


async def test_messages_go_to_one_worker_each_and_are_settled_singly(
    cluster: Cluster, client: RawClient, topic: str
) -> None:
    publish_values(client, topic, b"0", b"1", b"2", b"3")
    name = await subscribed(cluster, topic)
    ann = await received(cluster, name, most=2)
    bob = await received(cluster, name, holder="bob")
    assert (values(ann), values(bob)) == ([b"0", b"1"], [b"2", b"3"])
    queues = Queues(cluster)
    said = [Settling(ann[0].lease, Verdict.ACCEPT), Settling(ann[1].lease, Verdict.RELEASE)]
    assert await queues.settle(name, said) == [None, None]
    again = await received(cluster, name, holder="bob")
    assert [(message.record.value, message.attempt) for message in again] == [(b"1", 2)]


async def test_a_token_is_good_on_any_connection_for_one_attempt(
    broker: RunningBroker, cluster: Cluster, client: RawClient, topic: str
) -> None:
    publish_values(client, topic, b"x")
    name = await subscribed(cluster, topic)
    (first,) = await received(cluster, name)
    text = first.lease.text()
    async with Cluster([parse_address(broker.bootstrap_servers)]) as other:
        await other.topic(topic)
        queues = Queues(other)
        assert await queues.settle(name, [Settling(read_token(text), Verdict.RELEASE)]) == [None]
        (second,) = await received(other, name, holder="ann")
        (refused,) = await queues.settle(name, [Settling(first.lease, Verdict.ACCEPT)])
        assert refused is not None
        assert refused.code is ErrorCode.INVALID_RECORD_STATE, "the first attempt is over"
        assert await queues.settle(name, [Settling(second.lease, Verdict.ACCEPT)]) == [None]


async def test_a_message_is_settled_by_its_offset_alone(cluster: Cluster, client: RawClient, topic: str) -> None:
    publish_values(client, topic, b"x")
    name = await subscribed(cluster, topic)
    (message,) = await received(cluster, name)
    lease = message_without_token(message.lease.topic_id, 0, message.record.offset)
    assert await Queues(cluster).settle(name, [Settling(lease, Verdict.ACCEPT)]) == [None]
    assert await received(cluster, name, wait_ms=100) == []


async def test_a_lease_that_is_renewed_outlasts_its_time_and_one_that_is_not_ends(
    cluster: Cluster, client: RawClient, topic: str
) -> None:
    publish_values(client, topic, b"kept", b"lost")
    name = await subscribed(cluster, topic)
    kept, _ = await received(cluster, name, lease_ms=400)
    assert await Queues(cluster).settle(name, [Settling(kept.lease, Verdict.RENEW, lease_ms=60_000)]) == [None]
    again = await received(cluster, name, holder="bob")
    assert [(message.record.value, message.attempt) for message in again] == [(b"lost", 2)]
    assert await Queues(cluster).settle(name, [Settling(kept.lease, Verdict.ACCEPT)]) == [None]


async def test_a_released_message_stays_away_as_long_as_its_holder_said(
    cluster: Cluster, client: RawClient, topic: str
) -> None:
    publish_values(client, topic, b"x")
    name = await subscribed(cluster, topic)
    (message,) = await received(cluster, name)
    loop = asyncio.get_running_loop()
    began = loop.time()
    await Queues(cluster).settle(name, [Settling(message.lease, Verdict.RELEASE, delay_ms=500)])
    assert len(await received(cluster, name)) == 1
    assert loop.time() - began >= 0.5


async def test_a_waiting_receiver_gets_what_is_published_at_once(
    cluster: Cluster, client: RawClient, topic: str
) -> None:
    name = await subscribed(cluster, topic)
    waiting = asyncio.create_task(received(cluster, name, wait_ms=20_000))
    await asyncio.sleep(0.5)
    loop = asyncio.get_running_loop()
    began = loop.time()
    publish_values(client, topic, b"x")
    assert values(await waiting) == [b"x"]
    assert loop.time() - began < 2


async def test_a_receiver_that_hangs_up_while_it_waits_leases_nothing(
    broker: RunningBroker, cluster: Cluster, client: RawClient, topic: str
) -> None:
    name = await subscribed(cluster, topic)
    async with Cluster([parse_address(broker.bootstrap_servers)]) as gone:
        waiting = asyncio.create_task(received(gone, name, holder="gone", wait_ms=20_000))
        await asyncio.sleep(0.5)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    await asyncio.sleep(0.2)
    publish_values(client, topic, b"x")
    (message,) = await received(cluster, name)
    assert message.attempt == 1


async def test_a_description_says_how_many_are_where_and_why_nothing_comes(
    cluster: Cluster, client: RawClient, topic: str
) -> None:
    publish_values(client, topic, *(b"%d" % number for number in range(5)))
    name = await subscribed(cluster, topic)
    messages = await received(cluster, name, most=3)
    queues = Queues(cluster)
    await queues.settle(name, [Settling(messages[0].lease, Verdict.ACCEPT)])
    (queue,) = await queues.describe(name, limit=10)
    assert (queue.waiting, queue.leased, queue.start, queue.end, queue.stalled) == (2, 2, 1, 5, None)
    shown = [(one.offset, one.state, one.holder) for one in queue.messages]
    assert shown == [
        (1, "leased", "ann"), (2, "leased", "ann"), (3, "waiting", None), (4, "waiting", None),
    ]  # fmt: skip
    await queues.alter(name, is_paused=True)
    (queue,) = await queues.describe(name, first=0, only_that=True)
    assert queue.stalled == "the subscription is paused"
    assert queue.messages[0].state == "finished"
    assert await received(cluster, name, wait_ms=200) == []


async def test_a_seek_is_answered_and_holds(cluster: Cluster, client: RawClient, topic: str) -> None:
    publish_values(client, topic, *(b"%d" % number for number in range(5)))
    name = await subscribed(cluster, topic)
    await received(cluster, name)
    await Queues(cluster).seek(name, TopicPartition(topic, 0), 3)
    assert values(await received(cluster, name, holder="bob")) == [b"3", b"4"]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"lease.ms": "soon"}, "a whole number"),
        ({"attempts.max": "0"}, "from 1 to 250"),
        ({"backoff": "never"}, "immediate, fixed, exponential"),
        ({"colour": "red"}, "no setting 'colour'"),
        ({"dead.letter.topic": "no-such-topic"}, "create it first"),
        ({"backoff.ms": "1000", "backoff.max.ms": "10"}, "the longest is not the shorter one"),
    ],
)
async def test_what_makes_no_sense_is_refused_with_the_reason(
    cluster: Cluster, topic: str, settings: dict[str, str], sentence: str
) -> None:
    with pytest.raises(ApiError, match=sentence):
        await Queues(cluster).create("wrong", [topic], settings=settings)
    with pytest.raises(ApiError) as caught:
        await Queues(cluster).subscription("wrong")
    assert caught.value.code is ErrorCode.GROUP_ID_NOT_FOUND


async def test_a_pattern_covers_topics_that_are_made_later(cluster: Cluster, client: RawClient) -> None:
    prefix = f"eu-{next(_numbers)}"
    name = f"subscription-{next(_numbers)}"
    await Queues(cluster).create(name, patterns=[f"{prefix}-*"], settings={"start": "earliest"})
    later = create_topic(client, 1, name=f"{prefix}-west")
    publish_values(client, later, b"x")
    assert values(await received(cluster, name)) == [b"x"]
    assert (await Queues(cluster).subscription(name)).covered == (later,)


async def test_of_settlements_in_one_request_each_stands_for_itself(
    cluster: Cluster, client: RawClient, topic: str
) -> None:
    publish_values(client, topic, b"0", b"1")
    name = await subscribed(cluster, topic)
    first, second = await received(cluster, name)
    wrong = first.lease._replace(holder="another")
    late = second.lease._replace(lease_epoch=second.lease.lease_epoch + 7)
    errors = await Queues(cluster).settle(
        name,
        [
            Settling(wrong, Verdict.ACCEPT),
            Settling(late, Verdict.ACCEPT),
            Settling(first.lease, Verdict.ACCEPT),
            Settling(message_without_token(TopicId(first.lease.topic_id), 0, 99), Verdict.ACCEPT),
        ],
    )
    codes = [error.code if error is not None else None for error in errors]
    held = ErrorCode.INVALID_RECORD_STATE
    assert codes == [held, held, None, ErrorCode.INVALID_REQUEST]
