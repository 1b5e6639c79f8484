"""Transactions through the real command and a real broker."""

import json
import time
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from martlet.base.clock import SystemClock
from martlet.testing.running_broker import RunningBroker
from martlet.wire.batch import TRANSACTIONAL_BIT, build_batch, read_batch_header
from tests.broker.raw_client import RawClient
from tests.broker.requests import create_topic
from tests.broker.test_transaction_apis import TransactionalProducer
from tests.cli.conftest import Martlet

PATIENCE_S = 20
STRAY = 987_654


def open_transaction(broker: RunningBroker, name: str, topic: str) -> Producer:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": name, "linger.ms": 0})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush(PATIENCE_S)
    return producer


def asked(martlet: Martlet, *arguments: str) -> Any:
    ran = martlet(*arguments, "--json")
    assert (ran.exit_code, ran.stderr) == (0, "")
    return json.loads(ran.stdout)


def test_an_open_transaction_is_listed_described_and_aborted(broker: RunningBroker, martlet: Martlet) -> None:
    assert martlet("topic", "create", "paid", "--partitions", "2").exit_code == 0
    producer = open_transaction(broker, "payer", "paid")
    (listed,) = asked(martlet, "transaction", "list", "--state", "ongoing")
    assert (listed["transactional_id"], listed["state"]) == ("payer", "Ongoing")
    assert "payer" in martlet("transaction", "list").stdout
    assert asked(martlet, "transaction", "list", "--open-for", "3600") == []

    described = asked(martlet, "transaction", "describe", "payer")
    assert described["partitions"] == [["paid", 0]]
    shown = martlet("transaction", "describe", "payer").stdout
    assert "open for" in shown
    assert "paid" in shown
    held = martlet("topic", "describe", "paid").stdout
    assert "HELD BACK" in held
    assert asked(martlet, "topic", "describe", "paid")["partition_details"][0]["stable_offset"] == 0

    aborted = martlet("transaction", "abort", "payer", "--yes", "--json")
    assert (aborted.exit_code, aborted.stderr) == (0, "aborted the transaction of payer in 1 partition\n")
    assert json.loads(aborted.stdout) == {"transactional_id": "payer", "partitions": 1}
    with pytest.raises(KafkaException):
        producer.commit_transaction(PATIENCE_S)
    deadline = time.monotonic() + PATIENCE_S
    while "HELD BACK" in martlet("topic", "describe", "paid").stdout:
        assert time.monotonic() < deadline
    assert martlet("consume", "paid", "--from", "earliest", "--count", "1", "--timeout", "1").stdout == ""


def test_what_is_not_there_is_said_with_the_exit_code_of_a_failure(martlet: Martlet) -> None:
    unknown = martlet("transaction", "describe", "nobody")
    assert unknown.exit_code != 0
    assert "there is no transactional id 'nobody'" in unknown.stderr
    assert martlet("transaction", "abort", "nobody", "--yes").exit_code != 0
    assert martlet("transaction", "abort", "--yes").exit_code == 2


def test_an_abort_asks_first(broker: RunningBroker, martlet: Martlet) -> None:
    refused = martlet("transaction", "abort", "anything")
    assert refused.exit_code == 2
    assert "--yes" in refused.stderr


def test_a_hanging_transaction_is_found_and_ended_and_one_that_is_known_is_left_to_its_coordinator(
    broker: RunningBroker, martlet: Martlet
) -> None:
    with RawClient(broker.bootstrap_servers) as client:
        topic = create_topic(client, 1)
        known = TransactionalProducer(client, topic=topic)
        assert known.init() == 0
        assert known.produce(b"known").error_code == 0
        assert asked(martlet, "transaction", "list", "--hanging", "--idle-for", "0") == []
        refused = martlet(
            "transaction", "abort", "--partition", f"{topic}:0", "--producer", str(known.pair[0]), "--yes"
        )
        assert refused.exit_code != 0
        assert "its coordinator knows it" in refused.stderr
        assert known.end() == 0
        hang(broker, topic)
        deadline = time.monotonic() + PATIENCE_S
        while not (found := asked(martlet, "transaction", "list", "--hanging", "--idle-for", "0")):
            assert time.monotonic() < deadline
        assert [(one["topic"], one["partition"], one["producer_id"]) for one in found] == [(topic, 0, STRAY)]
        assert str(STRAY) in martlet("transaction", "list", "--hanging", "--idle-for", "0").stdout
        ended = martlet("transaction", "abort", "--partition", f"{topic}:0", "--producer", str(STRAY), "--yes")
        assert ended.exit_code == 0, ended.stderr
        assert asked(martlet, "transaction", "list", "--hanging", "--idle-for", "0") == []


def hang(broker: RunningBroker, topic: str) -> None:
    """As an older version's bug would have left it: a batch in a transaction that no coordinator has heard of."""

    async def append() -> None:
        services = broker.app.services
        assert services is not None
        partition = services.partitions.get(topic, 0)
        batch = build_batch(
            [(0, None, b"hangs", ())],
            producer_id=STRAY,
            producer_epoch=0,
            base_sequence=0,
            attributes=TRANSACTIONAL_BIT,
        )
        records = memoryview(bytearray(batch))
        partition.append(records, read_batch_header(records), now_ms=SystemClock().now_ms())

    broker.run(append())
