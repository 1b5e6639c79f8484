"""Consume, transform, publish: workers that carry messages over in transactions, and the check that none was lost.

Each worker has a partition of the source, a transactional id and a group of its own. It reads some messages, publishes
one for each with its place of origin, and commits the offset in the same transaction. Some transactions are aborted on
purpose, sometimes a producer is left behind in the middle of one. Whatever the brokers do meanwhile, a reader of
committed data must find every message exactly once, and in order.
"""

import random
import threading
import time
from collections.abc import Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

TIMEOUT_SECONDS = 60.0
_CALL_SECONDS = 20.0
_ABORTED = 0.2
_LEFT_BEHIND = 0.05
_MESSAGES_MAX = 20


class Worker(threading.Thread):
    """Carries one partition of the source over to the target, up to its end."""

    def __init__(self, servers: str, source: str, target: str, number: int, count: int) -> None:
        super().__init__(name=f"worker-{number}", daemon=True)
        self._servers = servers
        self._place = TopicPartition(source, number)
        self._target = target
        self._count = count
        self._chance = random.Random(number)
        self.name_of_transactions = f"{target}-worker-{number}"
        self.error: BaseException | None = None
        self.committed = self.aborted = self.begun_again = 0

    def run(self) -> None:
        try:
            while self._position() < self._count:
                self._carry_over()
        except (KafkaException, AssertionError) as error:  # the thread's owner raises it
            self.error = error

    def _position(self) -> int:
        """What is committed; waits for open transactions of older producers."""
        consumer = self._new_consumer()
        try:
            return self._committed(consumer)
        finally:
            consumer.close()

    def _carry_over(self) -> None:
        """With one producer until the end, an error that ends it, or the moment at which it is left behind."""
        producer = Producer(
            {
                "bootstrap.servers": self._servers,
                "transactional.id": self.name_of_transactions,
                "transaction.timeout.ms": 30_000,
                "linger.ms": 0,
            }
        )
        self.begun_again += 1
        consumer = self._new_consumer()
        try:
            producer.init_transactions(_CALL_SECONDS)
            offset = self._committed(consumer)
            consumer.assign([TopicPartition(self._place.topic, self._place.partition, offset)])
            while offset < self._count:
                batch = [one for one in consumer.consume(_MESSAGES_MAX, 0.5) if one.error() is None]
                if batch and not self._transaction(producer, consumer, batch):
                    return
                if batch:
                    offset = self._committed(consumer)
                    consumer.seek(TopicPartition(self._place.topic, self._place.partition, offset))
        except KafkaException as error:
            problem = error.args[0]
            if not isinstance(problem, KafkaError):
                raise
            time.sleep(0.2)
        finally:
            consumer.close()

    def _transaction(self, producer: Producer, consumer: Consumer, batch: Sequence[Message]) -> bool:
        """Whether the producer can be used on."""
        producer.begin_transaction()
        for message in batch:
            producer.produce(self._target, f"{message.partition()}:{message.offset()}", partition=self._place.partition)
        chance = self._chance.random()
        if chance < _LEFT_BEHIND:
            producer.flush(1.0)
            return False
        try:
            last = batch[-1].offset()
            assert last is not None
            position = TopicPartition(self._place.topic, self._place.partition, last + 1)
            producer.send_offsets_to_transaction([position], consumer.consumer_group_metadata(), _CALL_SECONDS)
            if chance < _LEFT_BEHIND + _ABORTED:
                producer.abort_transaction(_CALL_SECONDS)
                self.aborted += 1
            else:
                producer.commit_transaction(_CALL_SECONDS)
                self.committed += 1
        except KafkaException as error:
            problem = error.args[0]
            if not problem.txn_requires_abort():
                return False
            producer.abort_transaction(_CALL_SECONDS)
            self.aborted += 1
        return True

    def _new_consumer(self) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": self.name_of_transactions,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )

    def _committed(self, consumer: Consumer) -> int:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while True:
            try:
                (found,) = consumer.committed([self._place], timeout=_CALL_SECONDS)
                return max(found.offset, 0)
            except KafkaException:
                if time.monotonic() > deadline:
                    raise


def read_committed(servers: str, topic: str, partitions: int) -> dict[int, list[str]]:
    """Everything that readers of committed data see, by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": f"judge-of-{topic}",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    values: dict[int, list[str]] = {index: [] for index in range(partitions)}
    ended: set[int | None] = set()
    deadline = time.monotonic() + TIMEOUT_SECONDS
    try:
        consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
        while len(ended) < partitions:
            assert time.monotonic() < deadline, f"no end of {set(range(partitions)) - ended}"
            for message in consumer.consume(1_000, 0.2):
                error = message.error()
                if error is not None:
                    if error.code() == KafkaError._PARTITION_EOF:
                        ended.add(message.partition())
                    continue
                index, value = message.partition(), message.value()
                assert index is not None
                assert value is not None
                values[index].append(value.decode())
    finally:
        consumer.close()
    return values


def check_exactly_once(values: dict[int, list[str]], count: int) -> None:
    """Every message of each source partition, once and in order."""
    for partition, found in values.items():
        expected = [f"{partition}:{offset}" for offset in range(count)]
        missing, extra = set(expected) - set(found), [value for value in found if value not in set(expected)]
        assert not missing, f"{len(missing)} messages of partition {partition} are lost: {sorted(missing)[:5]}"
        assert not extra, f"partition {partition} holds what was never read: {extra[:5]}"
        assert len(found) == count, f"{len(found) - count} messages of partition {partition} came twice"
        assert found == expected, f"partition {partition} is out of order"
