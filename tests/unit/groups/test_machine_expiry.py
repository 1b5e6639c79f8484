"""What the sweep removes, and when."""

import pytest

from martlet.groups import cleanup
from martlet.groups.cleanup import SWEEP_INTERVAL_MS

from .group_bench import RETENTION_MS, SESSION_MS, GroupBench


@pytest.fixture
def bench() -> GroupBench:
    return GroupBench()


def pass_time(bench: GroupBench, ms: int, *, alive: object = None, group: str = "g") -> None:
    """Let time pass; a member that is given goes on sending heartbeats."""
    end_ms = bench.context.now_ms + ms
    while bench.context.now_ms < end_ms:
        bench.context.advance(min(SESSION_MS // 2, end_ms - bench.context.now_ms))
        if alive is not None:
            bench.heartbeat(alive, group)  # type: ignore[arg-type]


def test_offsets_of_a_simple_group_expire_after_their_commit(bench: GroupBench) -> None:
    bench.commit(offset=1)
    bench.context.advance(RETENTION_MS // 2)
    bench.commit(partition=1, offset=2)
    bench.context.advance(RETENTION_MS // 2 + SWEEP_INTERVAL_MS)
    assert (bench.fetch(), bench.fetch(partition=1)) == (-1, 2)
    bench.context.advance(RETENTION_MS)
    assert bench.listed() == []
    bench.context.reload()
    assert bench.machine.offsets.count == 0


def test_in_a_classic_group_the_time_counts_from_when_it_became_empty(bench: GroupBench) -> None:
    joined = bench.stable()
    bench.commit(member_id=joined.member_id, generation=joined.generation_id)
    pass_time(bench, 2 * RETENTION_MS, alive=joined)
    assert bench.fetch() == 5, "a member reads the topic"
    bench.leave(joined)
    bench.context.advance(RETENTION_MS - SWEEP_INTERVAL_MS)
    assert bench.fetch() == 5
    bench.context.advance(2 * SWEEP_INTERVAL_MS)
    assert bench.listed() == []


def test_a_live_classic_group_loses_topics_it_no_longer_reads(bench: GroupBench) -> None:
    bench.commit(topic="clicks")
    joined = bench.stable("g", "orders")
    bench.commit(topic="orders", member_id=joined.member_id, generation=joined.generation_id)
    pass_time(bench, RETENTION_MS + SWEEP_INTERVAL_MS, alive=joined)
    assert (bench.fetch(topic="orders"), bench.fetch(topic="clicks")) == (5, -1)


def test_a_live_group_of_another_type_keeps_everything(bench: GroupBench) -> None:
    bench.commit()
    joined = bench.stable("g", protocol_type="connect")
    pass_time(bench, RETENTION_MS + SWEEP_INTERVAL_MS, alive=joined)
    assert bench.fetch() == 5


def test_a_consumer_group_loses_what_it_does_not_read(bench: GroupBench) -> None:
    bench.commit(topic="clicks")
    bench.commit(topic="orders")
    epoch = bench.consumer_heartbeat("g", "m", 0, "orders").member_epoch
    end_ms = bench.context.now_ms + RETENTION_MS + SWEEP_INTERVAL_MS
    while bench.context.now_ms < end_ms:
        bench.context.advance(30_000)
        bench.consumer_heartbeat("g", "m", epoch)
    assert (bench.fetch(topic="orders"), bench.fetch(topic="clicks")) == (5, -1)


def test_an_empty_consumer_group_goes_with_its_offsets(bench: GroupBench) -> None:
    bench.commit()
    bench.consumer_heartbeat()
    bench.consumer_heartbeat("g", "m", -1)
    bench.context.advance(SWEEP_INTERVAL_MS)
    assert bench.listed() == [("g", "consumer", "Empty", "consumer")]
    bench.context.advance(RETENTION_MS)
    assert bench.listed() == []
    bench.context.reload()
    assert bench.listed() == []


def test_an_empty_group_without_offsets_is_removed(bench: GroupBench) -> None:
    bench.leave(bench.stable("classic"))
    bench.consumer_heartbeat("new")
    bench.consumer_heartbeat("new", "m", -1)
    assert len(bench.listed()) == 2
    bench.context.advance(SWEEP_INTERVAL_MS)
    assert bench.listed() == []


def test_a_retention_chosen_by_the_client_is_kept(bench: GroupBench) -> None:
    bench.commit(retention_ms=5 * RETENTION_MS, version=4)
    bench.context.advance(2 * RETENTION_MS)
    assert bench.fetch() == 5
    bench.context.advance(4 * RETENTION_MS)
    assert bench.fetch() == -1


def test_a_sweep_over_very_much_takes_several_turns(bench: GroupBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleanup, "TURN_BYTES_MAX", 1_000)
    monkeypatch.setattr(cleanup, "OFFSETS_PER_TURN_MAX", 20)
    for number in range(30):
        for partition in range(4):
            bench.commit(f"group-{number}", partition=partition)
    bench.context.take_records()
    bench.context.advance(RETENTION_MS // SWEEP_INTERVAL_MS * SWEEP_INTERVAL_MS)
    assert bench.machine.offsets.count == 120
    largest, before = 0, 120
    for _ in range(SWEEP_INTERVAL_MS + 5_000):
        bench.context.advance(1)
        largest, before = max(largest, before - bench.machine.offsets.count), bench.machine.offsets.count
        if not before:
            break
    assert before == 0
    assert largest < 20
    assert bench.listed() == []
