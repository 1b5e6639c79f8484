"""The rounds of one fetcher: fair to its partitions, undisturbed by those in trouble, never ahead of the device."""

import asyncio
import itertools
from dataclasses import replace

import pytest
from sim.world import SimWorld

from martlet.base.errors import ApiError, ErrorCode, InvariantViolation
from martlet.base.ids import BrokerId, Incarnation, LeaderEpoch, Member, TopicPartition
from martlet.client.connection import Connection
from martlet.cluster.keys import broker_config_key
from martlet.cluster.move_throttle import THROTTLED_RATE, THROTTLED_REPLICAS
from martlet.cluster.records import ConfigRecord, Endpoint, PartitionRecord, TopicRecord, encode_record
from martlet.cluster.store import CommitPlan
from martlet.log.replicated_batches import check_replicated
from martlet.wire.fetch import FetchPartition, FetchPartitionResult
from tests.unit.broker.following.replica_bench import (
    COMMIT,
    INTERVAL,
    ME,
    FakeLeader,
    FetchingBench,
    FollowedCopy,
    LedLog,
    Spoil,
    content,
    publish,
    run_bench,
    topic_id_of,
    until,
    values,
)
from tests.unit.cluster.images import puts

ORDERS = TopicPartition("orders", 0)
BILLS = TopicPartition("bills", 0)


def test_partitions_with_much_to_copy_advance_side_by_side() -> None:
    async def body(bench: FetchingBench) -> None:
        leader = await bench.add_leader()
        names = [TopicPartition(topic, index) for topic in ("orders", "bills") for index in range(3)]
        copies = []
        for name in names:
            led = leader.lead(name)
            for _ in range(30):
                led.publish(b"x" * 400)
            copies.append(bench.follow(name))
        while min(copy.log.end_offset for copy in copies) < 30:
            ends = [copy.log.end_offset for copy in copies]
            assert max(ends) - min(ends) <= 2, ends
            await asyncio.sleep(0.001)

    run_bench(body, bytes_max=600)


def test_a_busy_partition_does_not_keep_others_from_their_share() -> None:
    async def body(bench: FetchingBench) -> None:
        leader = await bench.add_leader()
        busy, quiet = leader.lead(ORDERS), leader.lead(BILLS)
        bench.follow(ORDERS)
        copy = bench.follow(BILLS)
        for number in itertools.count():
            busy.publish(b"x" * 900)
            if number % 10 == 5:
                quiet.publish(b"%d" % number)
                leader.wake()
                await until(lambda: copy.log.end_offset == quiet.log.end_offset, seconds=0.1)
            if number == 100:
                break
            leader.wake()
            await asyncio.sleep(0.002)

    run_bench(body, bytes_max=1_000)


def test_damaged_records_are_fetched_again_while_the_others_go_on() -> None:
    async def body(bench: FetchingBench) -> None:
        leader = await bench.add_leader()
        led, other = leader.lead(ORDERS), leader.lead(BILLS)
        led.publish(b"one")
        leader.spoil = _flip_a_byte_of(b"one")
        copy, healthy = bench.follow(ORDERS), bench.follow(BILLS)
        for number in range(20):
            other.publish(b"%d" % number)
            leader.wake()
            await until(lambda: healthy.log.end_offset == other.log.end_offset, seconds=0.1)
            await asyncio.sleep(0.1)
        assert copy.log.end_offset == 0
        assert 2 < bench.metrics.replica_fetch_errors < 20
        leader.spoil = None
        await until(lambda: copy.high_watermark == 1, seconds=2)
        assert content(copy.log) == content(led.log)

    run_bench(body)


def _flip_a_byte_of(marker: bytes) -> Spoil:
    """Damage answers that hold this, each time at another place."""
    places = itertools.count()

    def spoil(asked: FetchPartition, result: FetchPartitionResult) -> FetchPartitionResult:
        if marker not in bytes(result.records):
            return result
        damaged = bytearray(result.records)
        damaged[21 + next(places) % (len(damaged) - 21)] ^= 1
        return result._replace(records=bytes(damaged))

    return spoil


def test_a_log_that_cannot_be_written_pauses_alone() -> None:
    async def body(bench: FetchingBench) -> None:
        leader = await bench.add_leader()
        led, other = leader.lead(ORDERS), leader.lead(BILLS)
        led.publish(b"one")
        copy, healthy = bench.follow(ORDERS), bench.follow(BILLS)
        copy.failing_with = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full")
        for number in range(20):
            other.publish(b"%d" % number)
            leader.wake()
            await until(lambda: healthy.log.end_offset == other.log.end_offset, seconds=0.1)
            await asyncio.sleep(0.1)
        copy.failing_with = None
        await until(lambda: copy.high_watermark == 1, seconds=2)

    run_bench(body)


def test_a_partition_that_went_offline_is_not_asked_for_any_more() -> None:
    async def body(bench: FetchingBench) -> None:
        leader = await bench.add_leader()
        leader.lead(ORDERS)
        leader.lead(BILLS)
        copy = bench.follow(ORDERS)
        bench.follow(BILLS)
        await until(lambda: bool(leader.positions))
        copy.close()
        await asyncio.sleep(0.6)
        leader.positions.clear()
        await asyncio.sleep(5)
        assert leader.positions
        assert all(len(asked) == 1 for asked in leader.positions)

    run_bench(body)


def test_a_fault_of_our_own_with_one_partition_stops_only_that_one() -> None:
    async def body(bench: FetchingBench) -> None:
        leader = await bench.add_leader()
        led, other = leader.lead(ORDERS), leader.lead(BILLS)
        led.publish(b"one")
        other.publish(b"two")
        copy, healthy = bench.follow(ORDERS), bench.follow(BILLS)
        copy.failing_with = KeyError("a mistake")
        await until(lambda: healthy.high_watermark == 1)
        copy.failing_with = None
        await until(lambda: copy.high_watermark == 1, seconds=2)

    run_bench(body)


def test_a_broken_invariant_reaches_the_loops_exception_handler() -> None:
    async def main() -> list[BaseException | None]:
        seen: list[BaseException | None] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: seen.append(context.get("exception")))
        bench = FetchingBench(host)
        bench.fetching.start()
        leader = await bench.add_leader()
        leader.lead(ORDERS).publish(b"one")
        bench.follow(ORDERS).failing_with = InvariantViolation("P1: broken")
        await until(lambda: bool(seen))
        await bench.aclose()
        return seen

    with SimWorld(1) as world:
        host = world.add_host("machine")
        seen = world.run_process(host, main)
    assert isinstance(seen[0], InvariantViolation)


def test_an_unexpected_error_is_made_known_and_the_copying_goes_on() -> None:
    async def main() -> list[BaseException | None]:
        seen: list[BaseException | None] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: seen.append(context.get("exception")))
        bench = FetchingBench(host)
        context = bench.fetching._context

        async def connect(endpoint: Endpoint) -> Connection:
            if len(seen) < 2:
                raise UnicodeError("label too long")  # what resolving a bad host name raises
            return await context.ports.connect(endpoint)

        bench.fetching._context = replace(context, ports=replace(context.ports, connect=connect))
        bench.fetching.start()
        leader = await bench.add_leader()
        leader.lead(ORDERS).publish(b"one")
        copy = bench.follow(ORDERS)
        await until(lambda: copy.high_watermark == 1, seconds=5)
        await bench.aclose()
        return seen

    with SimWorld(1) as world:
        host = world.add_host("machine")
        seen = world.run_process(host, main)
    assert [type(error) for error in seen] == [UnicodeError, UnicodeError]


def test_an_answer_that_breaks_the_protocol_ends_the_connection_and_is_tried_again() -> None:
    async def body(bench: FetchingBench) -> None:
        leader = await bench.add_leader()
        leader.lead(ORDERS).publish(b"one")
        fetch = leader.scripts.pop(1)
        leader.scripts[1] = lambda request, version: b"\xff" * 30
        copy = bench.follow(ORDERS)
        await asyncio.sleep(3)
        assert 2 < leader.connection_count < 20
        leader.scripts[1] = fetch
        await until(lambda: copy.high_watermark == 1, seconds=2)

    run_bench(body)


# --- flush=commit


def _fetch_offsets(leader_positions: list[dict[tuple[bytes, int], FetchPartition]], topic: str) -> list[int]:
    key = (topic_id_of(topic), 0)
    return [asked[key].fetch_offset for asked in leader_positions if key in asked]


def test_under_commit_a_fetch_never_names_more_than_is_on_the_device() -> None:
    async def body(bench: FetchingBench) -> None:
        leader = await bench.add_leader()
        led = leader.lead(ORDERS)
        copy = bench.follow(ORDERS, policy=COMMIT)
        copy.flush_seconds = 0.01
        for number in range(50):
            led.publish(b"%d" % number)
            leader.wake()
            await asyncio.sleep(0.003)
            # Nothing is ever flushed but what was appended, so looking later than the leader did can only find more.
            assert _fetch_offsets(leader.positions, "orders")[-1] <= copy.log.durability.flushed_offset
        await until(lambda: copy.high_watermark == 50)

    run_bench(body)


def test_under_commit_the_leader_learns_of_a_quick_flush_at_once() -> None:
    async def body(bench: FetchingBench) -> None:
        leader = await bench.add_leader()
        led, other = leader.lead(ORDERS), leader.lead(BILLS)
        bench.follow(ORDERS, policy=COMMIT)
        bench.follow(BILLS, policy=COMMIT)
        await until(lambda: bool(leader.positions))
        for number in range(1, 30):
            led.publish(b"%d" % number)
            leader.wake()
            await until(lambda end=number: _fetch_offsets(leader.positions, "orders")[-1] == end, seconds=0.02)  # type: ignore[misc]
        assert other.log.end_offset == 0

    run_bench(body)


def test_under_commit_a_slow_flush_delays_its_own_partition_only() -> None:
    async def body(bench: FetchingBench) -> None:
        leader = await bench.add_leader()
        slow, quick = leader.lead(ORDERS), leader.lead(BILLS)
        copy = bench.follow(ORDERS, policy=COMMIT)
        healthy = bench.follow(BILLS)
        copy.flush_seconds = 3.0
        await until(lambda: bool(leader.positions))
        slow.publish(b"one")
        leader.wake()
        await until(lambda: copy.log.end_offset == 1)
        ends_at = asyncio.get_running_loop().time() + 2.9
        asked = len(leader.positions)
        while asyncio.get_running_loop().time() < ends_at:
            quick.publish(b"x")
            leader.wake()
            await until(lambda: healthy.log.end_offset == quick.log.end_offset, seconds=0.05)
            await asyncio.sleep(0.05)
            assert _fetch_offsets(leader.positions, "orders")[-1] == 0
        assert len(leader.positions) - asked < 400
        await until(lambda: _fetch_offsets(leader.positions, "orders")[-1] == 1, seconds=0.3)

    run_bench(body)


def test_a_partition_that_closes_during_its_flush_leaves_nothing_waiting() -> None:
    async def body(bench: FetchingBench) -> None:
        leader = await bench.add_leader()
        led = leader.lead(ORDERS)
        copy = bench.follow(ORDERS, policy=COMMIT)
        copy.flush_seconds = 1_000.0
        led.publish(b"one")
        leader.wake()
        await until(lambda: copy.log.end_offset == 1)
        copy.close()
        bench.fetching.roles_changed([copy])
        leader.positions.clear()
        await asyncio.sleep(2)
        assert not leader.positions

    run_bench(body)


# --- the throttle


def test_the_throttle_slows_copies_that_are_not_in_sync() -> None:
    async def body(bench: FetchingBench) -> None:
        leader = await bench.add_leader()
        led = leader.lead(ORDERS)
        for _ in range(30):
            led.publish(b"x" * 1_000)
        began = asyncio.get_running_loop().time()
        copy = bench.follow(ORDERS)
        await until(lambda: copy.high_watermark == 30, seconds=60)
        elapsed = asyncio.get_running_loop().time() - began
        assert len(content(led.log)) / 4_000 - 1.5 < elapsed < len(content(led.log)) / 4_000 + 1

    run_bench(body, throttle_bytes=4_000, bytes_max=2_000)


def test_the_throttle_leaves_copies_that_are_in_sync_alone() -> None:
    async def body(bench: FetchingBench) -> None:
        leader = await bench.add_leader()
        led = leader.lead(ORDERS)
        in_sync = (Member(BrokerId(1), Incarnation(10)), ME)
        replicas = (BrokerId(1), ME.broker)
        bench.store.commit(
            puts(
                TopicRecord("orders", topic_id_of("orders"), 1, 2),
                PartitionRecord(topic_id_of("orders"), 0, replicas, BrokerId(1), LeaderEpoch(1), isr=in_sync),
            )
        )
        copy = bench.follow(ORDERS)
        for _ in range(30):
            led.publish(b"x" * 1_000)
        await until(lambda: copy.high_watermark == 30, seconds=1)

    run_bench(body, throttle_bytes=1_000, bytes_max=2_000)


def _set(bench: FetchingBench, topic: dict[str, str] | None = None, rate: int | None = None) -> None:
    """Change the settings of the topic, of all brokers, or both."""
    changes: dict[str, bytes] = {}
    if topic is not None:
        record = TopicRecord("orders", topic_id_of("orders"), 1, 2, topic)
        replicas = (BrokerId(1), ME.broker)
        leader = (Member(BrokerId(1), Incarnation(10)),)
        led = PartitionRecord(topic_id_of("orders"), 0, replicas, BrokerId(1), LeaderEpoch(1), isr=leader)
        changes.update(puts(record, led).puts)
    if rate is not None:
        configs = {THROTTLED_RATE: str(rate)} if rate else {}
        changes[broker_config_key(None)] = encode_record(ConfigRecord(None, configs))
    bench.fetching.follow_settings(bench.store.commit(CommitPlan(puts=changes)))


def test_a_move_is_throttled_where_its_topic_names_it_and_the_rate_changes_while_it_runs() -> None:
    async def body(bench: FetchingBench) -> None:
        loop = asyncio.get_running_loop()
        leader = await bench.add_leader()
        led = leader.lead(ORDERS)
        for _ in range(30):
            led.publish(b"x" * 1_000)
        _set(bench, topic={THROTTLED_REPLICAS: f"0:{ME.broker}"}, rate=1_000)
        copy = bench.follow(ORDERS)
        await asyncio.sleep(5)
        copied = copy.log.end_offset
        assert 3 <= copied <= 9, "about a message a second"
        _set(bench, rate=10_000)
        began = loop.time()
        await until(lambda: copy.high_watermark == 30, seconds=6)
        assert loop.time() - began > 1.0

    run_bench(body, bytes_max=2_000)


@pytest.mark.parametrize("how", ["the rate is taken away", "the topic names others"])
def test_a_throttle_that_is_taken_away_holds_nothing_back_any_more(how: str) -> None:
    async def body(bench: FetchingBench) -> None:
        leader = await bench.add_leader()
        led = leader.lead(ORDERS)
        for _ in range(30):
            led.publish(b"x" * 1_000)
        _set(bench, topic={THROTTLED_REPLICAS: "*"}, rate=100)
        copy = bench.follow(ORDERS)
        await asyncio.sleep(5)
        assert copy.log.end_offset < 10
        if how == "the rate is taken away":
            _set(bench, rate=0)
        else:
            _set(bench, topic={THROTTLED_REPLICAS: f"0:{ME.broker + 1}"})
        await until(lambda: copy.high_watermark == 30, seconds=1)

    run_bench(body, bytes_max=2_000)


# --- two connections


def _many(bench: FetchingBench, leader: FakeLeader) -> list[TopicPartition]:
    names = [TopicPartition("orders", index) for index in range(40)]
    for name in names:
        leader.lead(name)
        bench.follow(name)
    return names


async def _write_for(leader: FakeLeader, led: LedLog, seconds: float) -> None:
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + seconds
    while loop.time() < ends_at:
        led.publish(b"x")
        leader.wake()
        await asyncio.sleep(0.01)


def test_of_many_partitions_those_that_are_written_to_are_asked_for_apart_from_the_others() -> None:
    async def body(bench: FetchingBench) -> None:
        leader = await bench.add_leader()
        names = _many(bench, leader)
        led = leader.lead(names[7])
        await _write_for(leader, led, 0.5)
        leader.positions.clear()
        await _write_for(leader, led, 2.0)
        sizes = [len(asked) for asked in leader.positions]
        assert set(sizes) <= {1, 39}
        assert sizes.count(39) < 8
        assert sizes.count(1) > 100
        assert leader.connection_count == 2

    run_bench(body)


def test_a_partition_that_is_written_to_no_more_goes_back_to_the_others() -> None:
    async def body(bench: FetchingBench) -> None:
        leader = await bench.add_leader()
        names = _many(bench, leader)
        led = leader.lead(names[7])
        await _write_for(leader, led, 0.5)
        await asyncio.sleep(4)
        leader.positions.clear()
        await asyncio.sleep(5)
        assert {len(asked) for asked in leader.positions} == {40}
        assert len(leader.positions) <= 11
        led.publish(b"again")
        leader.wake()
        copy = bench.copies[7]
        await until(lambda: copy.high_watermark == led.log.end_offset, seconds=0.05)

    run_bench(body)


def test_a_partition_changes_connections_without_a_moment_in_which_neither_fetches_it() -> None:
    async def body(bench: FetchingBench) -> None:
        leader = await bench.add_leader()
        names = _many(bench, leader)
        led, copy = leader.lead(names[7]), bench.copies[7]
        draw = bench.host.randomness
        for number in range(300):
            led.publish(b"%d" % number)
            leader.wake()
            await until(lambda: copy.high_watermark == led.log.end_offset, seconds=0.06)
            await asyncio.sleep((0.001, 0.01, 0.3, 2.1)[draw.below(4)])

    run_bench(body)


def test_a_busy_partition_that_gets_another_leader_is_forgotten_by_the_busy_connection() -> None:
    async def body(bench: FetchingBench) -> None:
        leader, other = await bench.add_leader(1), await bench.add_leader(3)
        names = _many(bench, leader)
        led = leader.lead(names[7])
        await _write_for(leader, led, 0.5)
        heir = other.lead(names[7], epoch=1)
        heir.log.append_as_is(check_replicated(content(led.log)), now_ms=0)
        other.lead(names[7], epoch=2)
        copy = bench.follow(names[7], leader=3, epoch=2)
        heir.publish(b"of the new leader")
        other.wake()
        await until(lambda: copy.high_watermark == heir.log.end_offset, seconds=0.1)
        await asyncio.sleep(1)
        leader.positions.clear()
        await asyncio.sleep(1)
        assert {len(asked) for asked in leader.positions} == {39}

    run_bench(body)


# --- whatever happens


@pytest.mark.parametrize("seed", range(15))
def test_copies_end_up_equal_whatever_happens_on_the_way(seed: int) -> None:
    async def body(bench: FetchingBench) -> None:
        draw = bench.host.randomness
        leaders = [await bench.add_leader(1), await bench.add_leader(3)]
        names = [TopicPartition(topic, index) for topic in ("orders", "bills") for index in range(2)]
        epochs = dict.fromkeys(names, 1)
        led_by = {name: leaders[draw.below(2)] for name in names}
        copies: dict[TopicPartition, FollowedCopy] = {}
        for name in names:
            led_by[name].lead(name)
            policy = COMMIT if draw.below(2) else INTERVAL
            copies[name] = bench.follow(name, leader=led_by[name].broker_id, policy=policy)
        for _ in range(150):
            name = names[draw.below(len(names))]
            leader = led_by[name]
            led = leader.led[topic_id_of(name.topic), name.partition]
            match draw.below(10):
                case 0 | 1 | 2 | 3:
                    led.publish(*[b"%d" % draw.below(1_000)] * (1 + draw.below(4)))
                    leader.wake()
                case 4:
                    leader.drop_connections()
                case 5:
                    # A leader in between wrote something here that no other has.
                    epochs[name] += 1
                    copy = copies[name]
                    copy.lead()
                    bench.fetching.roles_changed([copy])
                    copy.log.assign_epoch(epochs[name])
                    for _ in range(draw.below(3)):
                        publish(copy.log, b"lost", epoch=epochs[name])
                    epochs[name] += 1
                    leader.lead(name, epoch=epochs[name])
                    bench.follow(name, leader=leader.broker_id, epoch=epochs[name])
                case 6:
                    # The same leader in another epoch; it may hear of it later than we do.
                    epochs[name] += 1
                    bench.follow(name, leader=leader.broker_id, epoch=epochs[name])
                    await asyncio.sleep(draw.below(100) / 1000)
                    leader.lead(name, epoch=epochs[name])
                case 7:
                    led.log.advance_log_start(draw.below(led.log.end_offset + 1))
                case 8:
                    copies[name].flush_seconds = draw.below(100) / 1000
                case _:
                    await asyncio.sleep(draw.below(300) / 1000)
        for name, copy in copies.items():
            led = led_by[name].led[topic_id_of(name.topic), name.partition]
            led.publish(b"the last")
            led_by[name].wake()
            await until(lambda copy=copy, led=led: copy.high_watermark == led.log.end_offset)  # type: ignore[misc]
            await until(lambda copy=copy, led=led: copy.log.log_start_offset == led.log.log_start_offset)  # type: ignore[misc]
            assert content(copy.log) == content(led.log)
            assert values(copy.log) == values(led.log)

    run_bench(body, seed=seed, bytes_max=3_000, busy_connection_from=1 if seed % 2 else 16)
