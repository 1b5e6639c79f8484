"""How far groups are behind, as the broker tells an autoscaler."""

import asyncio
from collections.abc import Callable, Iterator

from sim.clock import SimClock

from martlet.base.errors import StorageFailure
from martlet.base.ids import NO_TOPIC_ID, BrokerId, Incarnation, LeaderEpoch, Member
from martlet.broker.coordinators.group_lag import OTHER, TOPICS_PER_GROUP_MAX, GroupLag, Lag
from martlet.broker.ground.disk_space import DiskSpace
from martlet.broker.partitions.damage_reports import DamageReports
from martlet.broker.partitions.flush_policy import FlushMode, FlushPolicy
from martlet.broker.partitions.partition import Partition
from martlet.cluster.records import PartitionRecord
from martlet.log.options import LogOptions
from martlet.log.partition_log import PartitionLog
from martlet.observe.exposition import MetricsRegistry
from martlet.observe.metrics import BrokerMetrics, TopicCounters
from martlet.wire.batch import build_batch, read_batch_header
from tests.unit.log.log_builders import PARTITION, new_disk, open_log

NOW_MS = 1_700_000_000_000


class Owner:
    """What partitions report to; none of it matters here."""

    space = DiskSpace(lambda: 1 << 40, 0, SimClock())
    damage = DamageReports("/logs", BrokerMetrics())

    def __init__(self) -> None:
        self.flusher = self
        self.on_may_join: Callable[[Partition], None] = lambda partition: None

    def appended(self, partition: Partition) -> None: ...

    def storage_failed(self, partition: Partition, error: StorageFailure) -> None: ...


class SomeGroups:
    """Stands in for the groups machines."""

    def __init__(self) -> None:
        self.offsets: dict[tuple[str, str, int], int] = {}
        self.members: dict[str, int] = {}

    def committed_offsets(self) -> Iterator[tuple[str, str, int, int]]:
        return ((*key, offset) for key, offset in self.offsets.items())

    def member_counts(self) -> Iterator[tuple[str, int]]:
        return iter(self.members.items())


class Bench:
    """One partition of every topic, the same log behind all of them."""

    def __init__(self, groups_max: int = 3, options: LogOptions | None = None) -> None:
        self.clock = SimClock(NOW_MS)
        self.groups = SomeGroups()
        self.log: PartitionLog = open_log(new_disk(), options or LogOptions(), now_ms=NOW_MS)
        policy = FlushPolicy(FlushMode.NEVER, 0, 0)
        me = Member(BrokerId(1), Incarnation(1))
        self.partition = Partition(PARTITION, NO_TOPIC_ID, self.log, me, policy, TopicCounters(), Owner())
        self.partition.lead(PartitionRecord(NO_TOPIC_ID, 0, (me.broker,), me.broker, LeaderEpoch(0), (me,)), 0)
        self.lag = GroupLag(lambda: [self.groups], self.find, self.clock, interval_ms=60_000, groups_max=groups_max)

    def find(self, topic: str, index: int) -> Partition | None:
        return self.partition if index == 0 else None

    def publish(self, *ages_ms: int) -> None:
        """One batch with a record for each age."""
        records = [(NOW_MS - age_ms, b"k", b"v", ()) for age_ms in ages_ms]
        batch = bytearray(build_batch(records))
        self.partition.append(memoryview(batch), read_batch_header(batch), now_ms=NOW_MS)

    def refresh(self) -> dict[tuple[str, str], Lag]:
        asyncio.run(self.lag.refresh())
        return self.lag.lags


def test_lag_is_the_unread_messages_and_the_age_of_the_oldest() -> None:
    bench = Bench()
    bench.publish(9_000)
    bench.publish(4_000)
    bench.groups.offsets = {("g", "t", 0): 0}
    assert bench.refresh() == {("g", "t"): Lag(2, 9.0)}
    bench.groups.offsets = {("g", "t", 0): 1}
    assert bench.refresh() == {("g", "t"): Lag(1, 4.0)}
    bench.groups.offsets = {("g", "t", 0): 2}
    assert bench.refresh() == {("g", "t"): Lag(0, 0.0)}


def test_a_batch_that_spans_time_is_opened() -> None:
    bench = Bench()
    bench.publish(9_000, 8_900, 5_000, 1_000)
    for committed, seconds in ((0, 9.0), (1, 9.0), (2, 5.0), (3, 1.0)):
        bench.groups.offsets = {("g", "t", 0): committed}
        assert bench.refresh() == {("g", "t"): Lag(4 - committed, seconds)}


def test_a_batch_is_read_once_while_the_group_stays_in_it() -> None:
    bench = Bench()
    bench.publish(9_000, 5_000, 1_000)
    for committed in (0, 0, 1, 2):
        bench.groups.offsets = {("g", "t", 0): committed}
        bench.refresh()
    assert bench.lag.read_count == 1
    bench.publish(500)
    bench.groups.offsets = {("g", "t", 0): 3}
    bench.refresh()
    assert bench.lag.read_count == 2


def test_the_age_grows_while_no_member_reads() -> None:
    bench = Bench()
    bench.publish(1_000)
    bench.groups.offsets = {("g", "t", 0): 0}
    bench.refresh()
    bench.clock.advance(30_000)
    assert bench.refresh() == {("g", "t"): Lag(1, 31.0)}


def test_what_is_deleted_from_the_log_is_not_waited_for() -> None:
    bench = Bench()
    bench.publish(9_000)
    bench.publish(4_000)
    bench.log.advance_log_start(1)
    bench.groups.offsets = {("g", "t", 0): 0}
    assert bench.refresh() == {("g", "t"): Lag(1, 4.0)}


def test_partitions_led_elsewhere_and_offsets_below_zero_are_left_out() -> None:
    bench = Bench()
    bench.publish(9_000)
    bench.groups.offsets = {("g", "t", 1): 0, ("h", "t", 0): -1}
    assert bench.refresh() == {}


def test_topics_of_a_group_are_told_apart_and_partitions_added_up() -> None:
    bench = Bench()
    bench.publish(9_000)
    bench.groups.offsets = {("g", "t", 0): 0, ("g", "u", 0): 1}
    assert bench.refresh() == {("g", "t"): Lag(1, 9.0), ("g", "u"): Lag(0, 0.0)}


def test_groups_past_the_limit_are_counted_together_and_those_with_series_keep_them() -> None:
    bench = Bench(groups_max=1)
    bench.publish(9_000)
    bench.groups.offsets = {("m", "t", 0): 0}
    bench.groups.members = {"m": 2}
    bench.refresh()
    bench.groups.offsets |= {("a", "t", 0): 0, ("z", "t", 0): 0, ("x" * 300, "t", 0): 0}
    bench.groups.members |= {"a": 1, "z": 4}
    assert bench.refresh() == {("m", "t"): Lag(1, 9.0), (OTHER, OTHER): Lag(3, 9.0)}
    assert bench.lag.members == {"m": 2, OTHER: 5}


def test_topics_of_one_group_have_a_limit_too() -> None:
    bench = Bench()
    bench.publish(9_000)
    bench.groups.offsets = {("g", f"t{number:03}", 0): 0 for number in range(TOPICS_PER_GROUP_MAX + 10)}
    lags = bench.refresh()
    assert len(lags) == TOPICS_PER_GROUP_MAX + 1
    assert lags["g", OTHER] == Lag(10, 9.0)


def test_a_group_that_is_gone_takes_its_series_with_it() -> None:
    bench = Bench()
    bench.publish(9_000)
    bench.groups.offsets = {("g", "t", 0): 0}
    bench.groups.members = {"g": 1}
    bench.refresh()
    bench.groups.offsets, bench.groups.members = {}, {}
    assert bench.refresh() == {}
    assert bench.lag.members == {}


def test_the_numbers_are_scraped_with_hostile_names_too() -> None:
    bench = Bench()
    bench.publish(9_000)
    bench.groups.offsets = {('a "group"\n', "t", 0): 0}
    bench.groups.members = {'a "group"\n': 3}
    metrics = BrokerMetrics()

    async def scrape() -> bytes:
        bench.lag.start(metrics)
        await bench.lag.refresh()
        text = MetricsRegistry(metrics, api_names={}, info={}).render()
        await bench.lag.aclose()
        return text

    text = asyncio.run(scrape()).decode()
    labels = r'group="a \"group\"\n"'
    assert f'martlet_group_lag_messages{{{labels},topic="t"}} 1.0' in text
    assert f'martlet_group_lag_seconds{{{labels},topic="t"}} 9.0' in text
    assert f"martlet_group_members{{{labels}}} 3.0" in text
