"""Workers on a subscription in a simulated cluster, and the judgement of what they were handed.

A delivery is known by lease epoch and attempt, which only rise for a message: no clock has to be right.

QUE-1 once the acknowledgement of a delivery was answered, no later delivery is made;
QUE-2 no delivery is made twice;
QUE-4 a lease that has ended cannot end its message, when another one was given since;
QUE-3 once all is quiet, every message that is in the log was delivered, and is finished.
"""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import Final

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import TopicPartition
from martlet.client.cluster import Cluster
from martlet.client.errors import ClientError
from martlet.client.offsets import LATEST, list_offsets
from martlet.client.queues import Queues, Received, Receiver, Settling, Verdict
from sim.host import SimHost
from sim.randomness import SimRandomness

SUBSCRIPTION: Final = "workers"
LEASE_MS: Final = 3_000
_TOGETHER: Final = 5

Place = tuple[TopicPartition, int]
Delivery = tuple[int, int]
"""Lease epoch and attempt."""


class QueueWorkers:
    """One subscription of one topic, and all that its workers saw."""

    def __init__(self, connect: Callable[[SimHost], Cluster], topic: str, report: Callable[[str, str], None]) -> None:
        self._connect = connect
        self._topic = topic
        self._report = report
        self._delivered: dict[Place, set[Delivery]] = {}
        self._acknowledged: dict[Place, Delivery] = {}
        self._sent: dict[Place, set[Delivery]] = {}
        """Deliveries whose acknowledgement was sent, answered or not."""
        self.answered = 0
        """Acknowledgements answered without an error."""

    async def subscribe(self, host: SimHost) -> None:
        """Once, whatever gets in the way."""
        settings = {"start": "earliest", "attempts.max": "250", "lease.ms": str(LEASE_MS)}
        while True:
            try:
                async with aclosing(self._connect(host)) as cluster:
                    await Queues(cluster).create(SUBSCRIPTION, [self._topic], settings=settings)
                return
            except ApiError as error:
                if error.code is ErrorCode.INVALID_REQUEST:
                    return  # an attempt without an answer has made it
            except ClientError:
                pass
            await asyncio.sleep(0.3)

    async def work(self, host: SimHost, draws: SimRandomness) -> None:
        """Receive and settle for ever; sometimes a message is given back, kept too long, or left lying."""
        holder = f"{host.name}.{host.starts}"
        while True:
            try:
                async with aclosing(self._connect(host)) as cluster:
                    queues = Queues(cluster)
                    receiver = Receiver(cluster, SUBSCRIPTION, holder, messages_max=_TOGETHER)
                    try:
                        while True:
                            await self._turn(queues, receiver, draws)
                    finally:
                        await receiver.aclose()
            except (ApiError, ClientError):
                await asyncio.sleep(0.3)

    async def _turn(self, queues: Queues, receiver: Receiver, draws: SimRandomness) -> None:
        received = await receiver.receive(500)
        for one in received:
            self._saw(one)
        if draws.below(10) == 0:
            await asyncio.sleep(draws.below(2 * LEASE_MS) / 1000)
        said = [(one, verdict) for one in received if (verdict := _verdict(draws)) is not None]
        settlings = [Settling(one.lease, verdict) for one, verdict in said]
        if not settlings:
            return
        for one, verdict in said:
            if verdict is Verdict.ACCEPT:
                self._sent.setdefault(_place(one), set()).add(_delivery(one))
        for (one, verdict), error in zip(said, await queues.settle(SUBSCRIPTION, settlings), strict=True):
            if error is None and verdict is Verdict.ACCEPT:
                self.answered += 1
                place, delivery = _place(one), _delivery(one)
                later = max(self._delivered[place])
                if later > delivery and self._sent[place] == {delivery}:
                    self._report("QUE-4", f"{place}: the lease {delivery} ended it, when {later} was given")
                self._acknowledged[place] = max(delivery, self._acknowledged.get(place, delivery))

    def _saw(self, one: Received) -> None:
        place, delivery = _place(one), _delivery(one)
        seen = self._delivered.setdefault(place, set())
        if delivery in seen:
            self._report("QUE-2", f"{place} was handed out twice as {delivery}")
        seen.add(delivery)
        last = self._acknowledged.get(place)
        if last is not None and delivery > last:
            self._report("QUE-1", f"{place} was acknowledged as {last} and is delivered as {delivery}")

    async def check_finished(self, host: SimHost, partitions: list[TopicPartition]) -> None:
        """When all is quiet: returns when everything there is was delivered and is finished."""
        while True:
            try:
                async with aclosing(self._connect(host)) as cluster:
                    ends = await list_offsets(cluster, dict.fromkeys(partitions, LATEST))
                    queues = await Queues(cluster).describe(SUBSCRIPTION)
                    if len(queues) == len(partitions) and all(
                        not queue.error_code
                        and queue.low_mark == ends[TopicPartition(queue.topic, queue.partition)].offset
                        for queue in queues
                    ):
                        break
            except (ApiError, ClientError):
                pass
            await asyncio.sleep(0.5)

    def check_all_delivered(self, values: dict[TopicPartition, list[int]]) -> None:
        """QUE-3: every offset that a reader found was delivered to some worker."""
        for partition, offsets in values.items():
            missing = [offset for offset in offsets if (partition, offset) not in self._delivered]
            if missing:
                self._report("QUE-3", f"{partition}: never delivered, and finished: {missing[:5]}")


def _verdict(draws: SimRandomness) -> Verdict | None:
    drawn = draws.below(12)
    if drawn == 0:
        return None
    return Verdict.RELEASE if drawn == 1 else Verdict.RENEW if drawn == 2 else Verdict.ACCEPT


def _place(one: Received) -> Place:
    return one.partition, one.record.offset


def _delivery(one: Received) -> Delivery:
    return one.lease.lease_epoch, one.attempt
