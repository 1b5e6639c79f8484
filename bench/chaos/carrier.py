"""One client that consumes, transforms and publishes in transactions, in a process that may be killed at any time.

    python -m bench.chaos.carrier    with one JSON object on the standard input

It carries one partition of the source over to both targets with librdkafka. What it is about to do is printed before
it is done, one JSON array a line, so that the process that kills it knows what may have happened. It ends by itself
when a newer producer of its transactional id has fenced it, or after any other error that its library calls fatal.
"""

import json
import os
import random
import sys
import threading
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from sim.transaction_history import Place, Transaction, TransactionHistory

CALL_SECONDS: Final = 20.0
_AT_ONCE: Final = 20
_PERCENT_ABORTED: Final = 20
_PERCENT_LEFT: Final = 3


@dataclass(frozen=True)
class Errand:
    """What one process carries, and under which names."""

    servers: str
    name: str
    transactional_id: str
    group: str
    source: str
    partition: int
    targets: list[str]
    target_partitions: int
    timeout_ms: int
    seed: int


def say(*event: Any) -> None:
    print(json.dumps(event), flush=True)


class Carrier:
    """Begins where the group stands and goes on until it is ended."""

    def __init__(self, errand: Errand) -> None:
        self._errand = errand
        self._chance = random.Random(errand.seed)
        self._names = TransactionHistory()
        self._producer = Producer(
            {
                "bootstrap.servers": errand.servers,
                "transactional.id": errand.transactional_id,
                "transaction.timeout.ms": errand.timeout_ms,
                "linger.ms": 0,
                "log_level": 0,
            }
        )
        self._consumer = Consumer(
            {
                "bootstrap.servers": errand.servers,
                "group.id": errand.group,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "log_level": 0,
            }
        )

    def run(self) -> None:
        self._producer.init_transactions(CALL_SECONDS)
        self._go_on_from(self._position())
        while True:
            batch = [one for one in self._consumer.consume(_AT_ONCE, 0.3) if one.error() is None]
            if batch and not self._carry(batch):
                self._go_on_from(self._position())

    def _position(self) -> int:
        place = TopicPartition(self._errand.source, self._errand.partition)
        (found,) = self._consumer.committed([place], timeout=CALL_SECONDS)
        return max(found.offset, 0)

    def _go_on_from(self, offset: int) -> None:
        self._consumer.assign([TopicPartition(self._errand.source, self._errand.partition, offset)])

    def _carry(self, batch: list[Message]) -> bool:
        """Whether the batch was committed; raises what this producer cannot survive."""
        errand, transaction = self._errand, self._names.begin(self._errand.name)
        say("begin")
        self._producer.begin_transaction()
        try:
            for message in batch:
                self._write(transaction, message)
            last = batch[-1].offset()
            assert last is not None
            say("leaving", last + 1)
            position = TopicPartition(errand.source, errand.partition, last + 1)
            metadata = self._consumer.consumer_group_metadata()
            self._producer.send_offsets_to_transaction([position], metadata, CALL_SECONDS)
            draw = self._chance.randrange(100)
            if draw < _PERCENT_LEFT:
                os._exit(0)
            if draw < _PERCENT_LEFT + _PERCENT_ABORTED:
                return self._abort()
            say("committing")
            self._producer.commit_transaction(CALL_SECONDS)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            return self._abort()
        say("committed")
        return True

    def _write(self, transaction: Transaction, message: Message) -> None:
        errand, offset = self._errand, message.offset()
        assert offset is not None
        place = Place(f"{errand.source}-{errand.partition}", offset)
        for topic in errand.targets:
            partition = self._chance.randrange(errand.target_partitions)
            value = self._names.writing(transaction, f"{topic}-{partition}", place)
            say("writing", f"{topic}-{partition}", offset)
            self._producer.produce(topic, value, partition=partition)

    def _abort(self) -> bool:
        self._producer.abort_transaction(CALL_SECONDS)
        say("aborted")
        return False


def _end_with_input() -> None:
    sys.stdin.read()
    os._exit(0)


def main() -> None:
    errand = Errand(**json.loads(sys.stdin.readline()))
    threading.Thread(target=_end_with_input, daemon=True).start()
    try:
        Carrier(errand).run()
    except KafkaException as error:
        say("ended", str(error.args[0]))
    os._exit(0)


if __name__ == "__main__":
    main()
