"""Where readers of committed data wait for too long, the log says so once, and metrics show it."""

import logging

import pytest

from martlet.broker.partitions.held_readers import HeldReaders
from tests.unit.broker.partitions.test_last_stable_offset import in_transaction, led_alone, marker, plain
from tests.unit.broker.replica_table_bench import ReplicaTableBench, replica_table

TIMEOUT_MS = 60_000
MINUTE_MS = 60_000


def made(bench: ReplicaTableBench) -> HeldReaders:
    led_alone(bench)
    return HeldReaders(bench.table, bench.clock, bench.metrics, TIMEOUT_MS)


def gauge(bench: ReplicaTableBench, name: str) -> float:
    return next(gauge.read() for gauge in bench.metrics.gauges if gauge.name == name)


async def test_what_is_hidden_is_counted_and_so_is_the_time_for_which_it_is() -> None:
    async with replica_table() as bench:
        held = made(bench)
        plain(bench)
        in_transaction(bench)
        plain(bench)
        await bench.flush()
        held.look()
        bench.clock.advance(7_000)
        assert gauge(bench, "martlet_unstable_messages") == 2
        assert gauge(bench, "martlet_held_readers_seconds") == 7
        marker(bench)
        await bench.flush()
        held.look()
        assert gauge(bench, "martlet_unstable_messages") == 0
        assert gauge(bench, "martlet_held_readers_seconds") == 0


async def test_a_wait_longer_than_any_time_out_is_said_once_with_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    async with replica_table() as bench:
        held = made(bench)
        in_transaction(bench)
        await bench.flush()
        with caplog.at_level(logging.WARNING):
            for _ in range(5):
                held.look()
                bench.clock.advance(MINUTE_MS)
        (line,) = caplog.messages
        assert "orders-0" in line
        assert "offset 0" in line
        assert "producer 7" in line
        assert "--hanging" in line


async def test_transactions_that_end_one_after_the_other_are_no_reason_to_speak(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with replica_table() as bench:
        held = made(bench)
        for number in range(5):
            in_transaction(bench, number)
            await bench.flush()
            held.look()
            bench.clock.advance(MINUTE_MS)
            marker(bench)
            await bench.flush()
        held.look()
        assert caplog.messages == []
