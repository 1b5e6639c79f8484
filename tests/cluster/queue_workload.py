"""Workers on one subscription while brokers are killed, and the checker that judges what they saw.

A delivery is known by lease epoch and attempt, which only rise for a message, and all workers are in one process, so
that times compare. A later attempt than the acknowledged one, which a worker asked for after that was answered, may
never be seen. Either alone says too little: a worker that acknowledges late, after another has finished the message,
is answered that it is finished, and a slow one may find an earlier attempt among what was handed to it before.
"""

import asyncio
import time
from collections import defaultdict
from dataclasses import dataclass, field

from martlet.base.addresses import parse_address
from martlet.base.errors import ApiError
from martlet.client.cluster import Cluster
from martlet.client.errors import ClientError
from martlet.client.queues import Queues, Receiver, Settling, Verdict

Place = tuple[str, int, int]
"""Topic, partition and offset."""
Delivery = tuple[int, int]
"""Lease epoch and attempt."""


@dataclass
class History:
    """What all workers saw."""

    delivered: dict[Place, list[Delivery]] = field(default_factory=lambda: defaultdict(list))
    asked_at: dict[tuple[Place, Delivery], float] = field(default_factory=dict)
    """When the worker began to ask that was given this."""
    acknowledged: dict[Place, tuple[Delivery, float]] = field(default_factory=dict)
    """Whose acknowledgement was the first to be answered without an error, and when."""
    values: dict[Place, bytes] = field(default_factory=dict)
    failures: int = 0

    def violations(self) -> list[str]:
        """Deliveries after an answered acknowledgement, and one delivery made twice."""
        found = []
        for place, deliveries in self.delivered.items():
            last, answered_at = self.acknowledged.get(place, ((0, 0), float("inf")))
            if any(one > last and self.asked_at[place, one] > answered_at for one in deliveries):
                found.append(f"{place} was acknowledged as {last} and delivered as {deliveries}")
            if len(set(deliveries)) < len(deliveries):
                found.append(f"{place} was handed out twice in one attempt: {deliveries}")
        return found


class Workers:
    """Receive and acknowledge until they are stopped; every seventh message is given back once."""

    def __init__(self, bootstrap: str, subscription: str, count: int, history: History) -> None:
        self._bootstrap = bootstrap
        self._subscription = subscription
        self._count = count
        self._history = history
        self._is_stopping = False

    async def run(self) -> None:
        await asyncio.gather(*(self._work(f"worker-{number}") for number in range(self._count)))

    def stop(self) -> None:
        self._is_stopping = True

    async def _work(self, holder: str) -> None:
        async with Cluster([parse_address(one) for one in self._bootstrap.split(",")]) as cluster:
            queues = Queues(cluster)
            receiver = Receiver(cluster, self._subscription, holder, messages_max=10, lease_ms=2_000)
            while not self._is_stopping:
                try:
                    await self._turn(queues, receiver)
                except (ApiError, ClientError, TimeoutError):
                    self._history.failures += 1
                    await asyncio.sleep(0.1)
            await receiver.aclose()

    async def _turn(self, queues: Queues, receiver: Receiver) -> None:
        history = self._history
        asked_at = time.monotonic()
        received = await receiver.receive(500)
        settlings = []
        for one in received:
            place = (one.partition.topic, one.partition.partition, one.record.offset)
            delivery = one.lease.lease_epoch, one.attempt
            history.delivered[place].append(delivery)
            history.asked_at[place, delivery] = asked_at
            history.values[place] = one.record.value or b""
            is_given_back = one.record.offset % 7 == 0 and len(history.delivered[place]) == 1
            settlings.append(Settling(one.lease, Verdict.RELEASE if is_given_back else Verdict.ACCEPT))
        if not settlings:
            return
        for settling, one, error in zip(
            settlings, received, await queues.settle(self._subscription, settlings), strict=True
        ):
            if error is None and settling.verdict is Verdict.ACCEPT:
                place = (one.partition.topic, one.partition.partition, one.record.offset)
                delivery = one.lease.lease_epoch, one.attempt
                history.acknowledged.setdefault(place, (delivery, time.monotonic()))
