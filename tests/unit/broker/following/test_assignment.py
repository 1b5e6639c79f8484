"""Which partition is copied from whom, and that copies become equal whatever leaders and connections do."""

import asyncio

from martlet.base.errors import ErrorCode
from martlet.base.ids import BrokerId, Incarnation, Member, TopicPartition
from martlet.broker.following.request import ReplicaIdentity
from martlet.log.replicated_batches import check_replicated
from tests.unit.broker.following.replica_bench import FetchingBench, content, publish, run_bench, until, values

ORDERS = TopicPartition("orders", 0)
BILLS = TopicPartition("bills", 0)


def test_what_the_leader_holds_is_copied_byte_for_byte() -> None:
    async def body(bench: FetchingBench) -> None:
        leader = await bench.add_leader()
        led = leader.lead(ORDERS)
        for number in range(100):
            led.publish(b"%d" % number * 40, b"second")
        copy = bench.follow(ORDERS)
        await until(lambda: copy.high_watermark == 200)
        assert content(copy.log) == content(led.log)
        assert copy.log.epochs.entries == led.log.epochs.entries

    run_bench(body)


def test_what_is_published_later_arrives_without_waiting_for_the_poll_to_end() -> None:
    async def body(bench: FetchingBench) -> None:
        leader = await bench.add_leader()
        led = leader.lead(ORDERS)
        copy = bench.follow(ORDERS)
        await until(lambda: len(leader.fetches) == 1)
        await asyncio.sleep(0.1)
        led.publish(b"late")
        leader.wake()
        await until(lambda: copy.high_watermark == 1, seconds=0.05)
        assert values(copy.log) == [b"late"]

    run_bench(body)


def test_a_partition_followed_during_an_idle_poll_does_not_wait_for_its_end() -> None:
    async def body(bench: FetchingBench) -> None:
        leader = await bench.add_leader()
        leader.lead(ORDERS)
        leader.lead(BILLS).publish(b"one")
        bench.follow(ORDERS)
        await until(lambda: len(leader.fetches) == 1)
        copy = bench.follow(BILLS)
        await until(lambda: copy.high_watermark == 1, seconds=0.1)
        assert bench.metrics.replica_fetch_errors == 0

    run_bench(body)


def test_partitions_are_fetched_from_the_leader_each_has() -> None:
    async def body(bench: FetchingBench) -> None:
        first, second = await bench.add_leader(1), await bench.add_leader(3)
        first.lead(ORDERS).publish(b"of one")
        second.lead(BILLS).publish(b"of three")
        orders, bills = bench.follow(ORDERS, leader=1), bench.follow(BILLS, leader=3)
        await until(lambda: orders.high_watermark == bills.high_watermark == 1)
        assert all(len(asked) == 1 for asked in first.positions + second.positions)

    run_bench(body)


def test_one_request_names_all_partitions_of_a_leader_and_only_one_is_under_way() -> None:
    async def body(bench: FetchingBench) -> None:
        leader = await bench.add_leader()
        names = [TopicPartition(topic, index) for topic in ("orders", "bills") for index in range(10)]
        for name in names:
            leader.lead(name)
            bench.follow(name)
        await until(lambda: bool(leader.fetches))
        assert len(leader.positions[0]) == 20
        await asyncio.sleep(5)
        assert len(leader.fetches) <= 11
        assert leader.connection_count == 1

    run_bench(body)


def test_a_copy_with_another_history_is_cut_to_where_both_agree() -> None:
    async def body(bench: FetchingBench) -> None:
        leader = await bench.add_leader()
        led = leader.lead(ORDERS, epoch=1)
        led.publish(b"both have")
        copy = bench.follow(ORDERS, epoch=1)
        await until(lambda: copy.high_watermark == 1)
        copy.lead()
        bench.fetching.roles_changed([copy])
        publish(copy.log, b"never committed", epoch=2)
        publish(copy.log, b"nor this", epoch=2)
        leader.lead(ORDERS, epoch=3)
        led.publish(b"instead")
        bench.follow(ORDERS, epoch=3)
        await until(lambda: copy.high_watermark == 2)
        assert values(copy.log) == [b"both have", b"instead"]
        assert copy.cuts == [1]
        assert copy.log.epochs.entries == led.log.epochs.entries

    run_bench(body)


def test_histories_that_part_several_epochs_ago_agree_after_several_rounds() -> None:
    async def body(bench: FetchingBench) -> None:
        leader = await bench.add_leader()
        led = leader.lead(ORDERS, epoch=1)
        led.publish(b"a")
        copy = bench.follow(ORDERS, epoch=1)
        await until(lambda: copy.high_watermark == 1)
        copy.lead()
        bench.fetching.roles_changed([copy])
        for epoch in (2, 4, 6):
            publish(copy.log, b"mine %d" % epoch, epoch=epoch)
        for epoch in (3, 5, 7):
            leader.lead(ORDERS, epoch=epoch)
            led.publish(b"theirs %d" % epoch)
        bench.follow(ORDERS, epoch=7)
        await until(lambda: copy.high_watermark == 4)
        assert content(copy.log) == content(led.log)
        assert copy.log.epochs.entries == led.log.epochs.entries

    run_bench(body)


def test_an_epoch_without_records_is_forgotten_before_anything_is_appended_under_it() -> None:
    async def body(bench: FetchingBench) -> None:
        leader = await bench.add_leader()
        led = leader.lead(ORDERS, epoch=1)
        led.publish(b"a")
        copy = bench.follow(ORDERS, epoch=1)
        await until(lambda: copy.high_watermark == 1)
        copy.lead()
        copy.log.assign_epoch(2)
        publish(led.log, b"of epoch one, never seen by us", epoch=1)
        leader.lead(ORDERS, epoch=3)
        led.publish(b"b")
        bench.follow(ORDERS, epoch=3)
        await until(lambda: copy.high_watermark == 3)
        assert copy.log.epochs.entries == led.log.epochs.entries

    run_bench(body)


def test_a_copy_that_is_too_far_behind_starts_over_where_the_leaders_log_begins() -> None:
    async def body(bench: FetchingBench) -> None:
        leader = await bench.add_leader()
        led = leader.lead(ORDERS)
        led.publish(b"old")
        copy = bench.follow(ORDERS)
        await until(lambda: copy.high_watermark == 1)
        copy.lead()
        bench.fetching.roles_changed([copy])
        for number in range(20):
            led.publish(b"%d" % number)
        led.log.advance_log_start(15)
        bench.follow(ORDERS)
        await until(lambda: copy.high_watermark == 21)
        assert copy.starts == [15]
        assert copy.log.log_start_offset == 15
        assert values(copy.log) == values(led.log)

    run_bench(body)


def test_a_leaders_log_that_begins_inside_a_batch_is_copied_with_the_whole_batch() -> None:
    async def body(bench: FetchingBench) -> None:
        leader = await bench.add_leader()
        led = leader.lead(ORDERS)
        led.publish(b"a", b"b", b"c", b"d")
        led.publish(b"e")
        led.log.advance_log_start(2)
        copy = bench.follow(ORDERS)
        await until(lambda: copy.high_watermark == 5)
        assert copy.log.log_start_offset == 2
        assert content(copy.log) == content(led.log)

    run_bench(body)


def test_the_log_start_of_the_leader_is_taken_over() -> None:
    async def body(bench: FetchingBench) -> None:
        leader = await bench.add_leader()
        led = leader.lead(ORDERS)
        led.publish(b"a")
        led.publish(b"b")
        copy = bench.follow(ORDERS)
        await until(lambda: copy.high_watermark == 2)
        led.log.advance_log_start(1)
        await until(lambda: copy.log.log_start_offset == 1)

    run_bench(body)


def test_another_leader_in_the_middle_of_copying_is_followed_from_then_on() -> None:
    async def body(bench: FetchingBench) -> None:
        first, second = await bench.add_leader(1), await bench.add_leader(3)
        led = first.lead(ORDERS, epoch=1)
        for number in range(50):
            led.publish(b"%d" % number * 100)
        copy = bench.follow(ORDERS, leader=1, epoch=1)
        await until(lambda: copy.log.end_offset > 10)
        heir = second.lead(ORDERS, epoch=1)
        heir.log.append_as_is(check_replicated(content(led.log)), now_ms=0)
        second.lead(ORDERS, epoch=2)
        heir.publish(b"of the new leader")
        bench.follow(ORDERS, leader=3, epoch=2)
        led.publish(b"of the old one, too late")
        await until(lambda: copy.high_watermark == 51)
        assert content(copy.log) == content(heir.log)
        asked = len(first.fetches)
        await asyncio.sleep(2)
        assert len(first.fetches) == asked

    run_bench(body, bytes_max=2_000)


def test_a_leader_that_has_not_heard_of_its_election_yet_is_asked_again() -> None:
    async def body(bench: FetchingBench) -> None:
        leader = await bench.add_leader()
        copy = bench.follow(ORDERS, epoch=4)
        await asyncio.sleep(3)
        assert 2 < len(leader.fetches) < 40
        leader.lead(ORDERS, epoch=3).publish(b"a")
        await asyncio.sleep(3)
        assert not copy.appends
        leader.lead(ORDERS, epoch=4)
        await until(lambda: copy.high_watermark == 1, seconds=2)

    run_bench(body)


def test_a_leader_that_is_down_is_tried_again_and_copied_from_when_it_is_back() -> None:
    async def body(bench: FetchingBench) -> None:
        leader = await bench.add_leader()
        led = leader.lead(ORDERS)
        copy = bench.follow(ORDERS)
        await until(lambda: bool(leader.fetches))
        await leader.stop()
        await asyncio.sleep(10)
        assert bench.metrics.replica_fetch_errors > 5
        led.publish(b"a")
        await leader.start()
        await until(lambda: copy.high_watermark == 1, seconds=2)

    run_bench(body)


def test_a_leader_that_registers_again_elsewhere_is_found_at_once() -> None:
    async def body(bench: FetchingBench) -> None:
        old = await bench.add_leader(1)
        old.lead(ORDERS)
        copy = bench.follow(ORDERS)
        await until(lambda: bool(old.fetches))
        new = await bench.add_leader(1)
        new.lead(ORDERS).publish(b"a")
        bench.register(new, incarnation=11)
        await until(lambda: copy.high_watermark == 1, seconds=0.1)
        asked = len(old.fetches)
        await asyncio.sleep(2)
        assert len(old.fetches) == asked

    run_bench(body)


def test_a_refused_fetch_is_tried_again_with_pauses() -> None:
    async def body(bench: FetchingBench) -> None:
        leader = await bench.add_leader()
        leader.lead(ORDERS).publish(b"a")
        leader.refuses_with = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        copy = bench.follow(ORDERS)
        await asyncio.sleep(10)
        assert 5 < len(leader.fetches) < 30
        leader.refuses_with = ErrorCode.NONE
        await until(lambda: copy.high_watermark == 1, seconds=2)

    run_bench(body)


def test_nothing_is_fetched_while_nothing_is_followed() -> None:
    async def body(bench: FetchingBench) -> None:
        leader = await bench.add_leader()
        leader.lead(ORDERS)
        copy = bench.follow(ORDERS)
        await until(lambda: bool(leader.fetches))
        copy.lead()
        bench.fetching.roles_changed([copy])
        asked = len(leader.fetches)
        await asyncio.sleep(5)
        assert len(leader.fetches) == asked

    run_bench(body)


def test_a_change_that_leaves_role_and_leader_as_they_are_disturbs_nothing() -> None:
    async def body(bench: FetchingBench) -> None:
        leader = await bench.add_leader()
        leader.lead(ORDERS)
        copy = bench.follow(ORDERS)
        await until(lambda: bool(leader.fetches))
        for _ in range(20):
            bench.fetching.roles_changed([copy])
            await asyncio.sleep(0.05)
        assert leader.connection_count == 1

    run_bench(body)


def test_the_lag_of_copies_is_shown_by_topic() -> None:
    async def body(bench: FetchingBench) -> None:
        leader = await bench.add_leader()
        led = leader.lead(ORDERS)
        for _ in range(10):
            led.publish(b"x" * 900)
        bench.metrics.topic("orders")
        copy = bench.follow(ORDERS)
        await until(lambda: 0 < copy.log.end_offset < 10)
        table = bench.metrics.gauge_tables[0]
        assert list(table.read()) == [(("orders",), 10 - copy.log.end_offset)]
        await until(lambda: copy.log.end_offset == 10)
        assert list(table.read()) == []

    run_bench(body, bytes_max=1_000)


def test_the_secret_of_the_replicas_is_never_shown() -> None:
    assert "hush" not in repr(ReplicaIdentity(Member(BrokerId(1), Incarnation(2)), "hush"))
