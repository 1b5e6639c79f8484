"""The judge of a running cluster: a sound one passes, and each invariant's breach is found and called by its name.

Three machines with made-up brokers: their logs lie on simulated disks, their beliefs are plain values.
"""

import asyncio
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from sim.ghost import Ghost
from sim.simulated_broker import log_directory
from sim.world import SimWorld

from martlet.base.ids import BrokerId, Incarnation, LeaderEpoch, Member, TopicId, TopicPartition
from martlet.broker.app import BrokerApp
from martlet.cluster.keys import broker_key, partition_key, topic_key
from martlet.cluster.records import BrokerRecord, PartitionRecord, TopicRecord, encode_record
from martlet.log.epoch_cache import EpochCache
from martlet.replication.in_sync import Proposed, Settled
from martlet.wire.batch import build_batch

ORDERS = TopicPartition("orders", 0)
TOPIC_ID = TopicId(b"orders".ljust(16))
ONE, TWO, THREE = (Member(BrokerId(number), Incarnation(number)) for number in (1, 2, 3))


class Stage:
    """Three brokers, of which the first leads in epoch 0 and all are in sync."""

    def __init__(self, world: SimWorld, *, durable: bool = False) -> None:
        self.world = world
        self.hosts = {BrokerId(number): world.add_host(f"broker{number}") for number in (1, 2, 3)}
        for host in self.hosts.values():
            host.start(asyncio.Event().wait)
        self.ghost = Ghost(world, self.hosts, min_in_sync=2, durable=durable)
        self.held: dict[BrokerId, Any] = {}
        self.apps: dict[BrokerId, Any] = {}
        self.may_act = True
        self.image_revision_of: dict[BrokerId, int] = {}
        for member in (ONE, TWO, THREE):
            self.register(BrokerRecord(member.broker, member.incarnation))
        self.store(leader=ONE, isr=(ONE, TWO, THREE))
        topic = TopicRecord("orders", TOPIC_ID, 1, 3)
        self._put({topic_key("orders"): encode_record(topic)})
        for member in (ONE, TWO, THREE):
            self._start(member)

    def _put(self, puts: dict[str, bytes]) -> None:
        self.world.store_server.state.apply({}, puts, (), (), None)

    def register(self, record: BrokerRecord) -> None:
        self._put({broker_key(record.id): encode_record(record)})

    def store(self, leader: Member, isr: tuple[Member, ...], epoch: int = 0, elr: tuple[Member, ...] = ()) -> None:
        record = PartitionRecord(
            TOPIC_ID,
            0,
            (ONE.broker, TWO.broker, THREE.broker),
            leader.broker,
            LeaderEpoch(epoch),
            isr=isr,
            elr=elr,
        )
        self._put({partition_key(TOPIC_ID, 0): encode_record(record)})

    def _start(self, member: Member) -> None:
        broker = member.broker
        log = SimpleNamespace(end_offset=0, log_start_offset=0, epochs=EpochCache([(0, 0)]), damage=())
        held = SimpleNamespace(log=log, leader=None, leader_epoch=0, high_watermark=0, offline=False)
        self.held[broker] = held
        if member == ONE:
            in_sync = Settled(frozenset((ONE, TWO, THREE)))
            held.leader = SimpleNamespace(me=member, leader_epoch=0, in_sync=in_sync)
        image = SimpleNamespace(revision=self.ghost.store.revision, topics=lambda: (), partitions=lambda name: ())
        table = SimpleNamespace(hosted=lambda *name: held, may_act=lambda: self.may_act)
        services = SimpleNamespace(me=member, partitions=table, image=image)
        self.apps[broker] = SimpleNamespace(services=services)
        self.ghost.started(broker, cast(BrokerApp, self.apps[broker]))

    def write(self, member: Member, *values: bytes, epoch: int = 0, sequence: int | None = None) -> None:
        """Append one batch to a broker's disk."""
        held, disk = self.held[member.broker], self.hosts[member.broker].disk
        directory = log_directory(member.broker, ORDERS)
        disk.make_directory(directory)
        base = held.log.end_offset
        batch = build_batch(
            [(0, None, value, ()) for value in values],
            base_offset=base,
            leader_epoch=epoch,
            producer_id=-1 if sequence is None else 7,
            producer_epoch=-1 if sequence is None else 0,
            base_sequence=-1 if sequence is None else sequence,
        )
        disk.open(f"{directory}/{0:020d}.log", create=True).append(batch)
        held.log.end_offset = base + len(values)
        if epoch != held.log.epochs.latest_epoch:
            held.log.epochs.assign(epoch, base)

    def everywhere(self, *values: bytes, sequence: int | None = None) -> None:
        for member in (ONE, TWO, THREE):
            self.write(member, *values, sequence=sequence)

    def commit_to(self, offset: int) -> None:
        held = self.held[ONE.broker]
        held.high_watermark = offset
        self.look()

    def look(self) -> None:
        for broker in self.hosts:
            self.ghost.before_crash(broker)

    @property
    def names(self) -> set[str]:
        return {violation.split(" ")[0] for violation in self.ghost.violations}


@pytest.fixture
def stage() -> Iterator[Stage]:
    with SimWorld("ghost") as world:
        made = Stage(world)
        made.everywhere(b"a", b"b")
        made.commit_to(2)
        assert made.ghost.violations == []
        yield made


def test_a_sound_cluster_breaks_nothing(stage: Stage) -> None:
    stage.everywhere(b"c", sequence=0)
    stage.everywhere(b"d", b"e", sequence=1)
    stage.commit_to(5)
    stage.held[TWO.broker].high_watermark = 3
    stage.look()
    stage.ghost.acknowledged(ORDERS, 4, b"e", committed_before=2)
    stage.ghost.delivered(ORDERS, 2, b"c")
    stage.ghost.position_committed(ORDERS, 5)
    stage.ghost.check_all_equal()
    assert stage.ghost.violations == []


def test_a_leader_may_commit_more_and_lose_its_leadership_in_one_turn(stage: Stage) -> None:
    stage.everywhere(b"c")
    stage.held[ONE.broker].high_watermark = 3
    stage.held[ONE.broker].leader = None
    stage.look()
    stage.ghost.acknowledged(ORDERS, 2, b"c", committed_before=2)
    assert stage.ghost.violations == []


def lose_batches(stage: Stage, member: Member) -> None:
    stage.hosts[member.broker].disk.cut(f"{log_directory(member.broker, ORDERS)}/{0:020d}.log", 0)
    stage.held[member.broker].log.end_offset = 0


def a_leader_of_a_new_epoch_that_lacks_something(stage: Stage) -> None:
    lose_batches(stage, TWO)
    stage.held[TWO.broker].leader = SimpleNamespace(me=TWO, leader_epoch=1, in_sync=Settled(frozenset((TWO,))))
    stage.held[TWO.broker].leader_epoch = 1
    stage.store(leader=TWO, isr=(TWO,), epoch=1)
    stage.look()


def an_acknowledgement_of_what_is_not_committed(stage: Stage) -> None:
    stage.ghost.acknowledged(ORDERS, 2, b"c", committed_before=0)


def an_acknowledgement_below_what_was_committed_before(stage: Stage) -> None:
    stage.ghost.acknowledged(ORDERS, 1, b"b", committed_before=2)


def a_member_in_sync_that_lacks_something(stage: Stage) -> None:
    lose_batches(stage, THREE)
    stage.store(leader=ONE, isr=(ONE, THREE))


def an_eligible_member_that_lacks_something(stage: Stage) -> None:
    lose_batches(stage, THREE)
    stage.store(leader=ONE, isr=(ONE,), elr=(THREE,))


def two_replicas_that_differ_below_the_high_watermark(stage: Stage) -> None:
    lose_batches(stage, TWO)
    stage.write(TWO, b"x", b"y", epoch=3)
    stage.held[TWO.broker].high_watermark = 2
    stage.look()


def one_offset_written_twice_in_one_epoch(stage: Stage) -> None:
    stage.write(ONE, b"c")
    stage.look()
    stage.write(TWO, b"x")
    stage.look()


def a_candidate_that_commits_do_not_wait_for(stage: Stage) -> None:
    stage.held[ONE.broker].leader.in_sync = Settled(frozenset((ONE, TWO)))
    stage.look()


def a_proposal_that_is_stored_and_not_waited_for(stage: Stage) -> None:
    stage.store(leader=ONE, isr=(ONE, TWO))
    stage.held[ONE.broker].leader.in_sync = Settled(frozenset((ONE, TWO)))
    stage.look()
    assert stage.ghost.violations == []
    stage.store(leader=ONE, isr=(ONE, TWO, THREE))


def two_leaders_in_one_epoch(stage: Stage) -> None:
    stage.held[TWO.broker].leader = SimpleNamespace(
        me=TWO, leader_epoch=0, in_sync=Settled(frozenset((ONE, TWO, THREE)))
    )
    stage.look()


def an_epoch_stored_with_two_leaders(stage: Stage) -> None:
    stage.store(leader=TWO, isr=(ONE, TWO, THREE), epoch=0)


def an_epoch_that_goes_back(stage: Stage) -> None:
    stage.store(leader=TWO, isr=(ONE, TWO, THREE), epoch=5)
    stage.store(leader=THREE, isr=(ONE, TWO, THREE), epoch=4)


def a_high_watermark_beyond_a_member_of_the_maximal_set(stage: Stage) -> None:
    leader = stage.held[ONE.broker].leader
    leader.in_sync = Proposed(frozenset((ONE, TWO)), frozenset((ONE, TWO, THREE)))
    stage.write(ONE, b"c")
    stage.write(TWO, b"c")
    stage.commit_to(3)


def a_high_watermark_that_moves_under_the_minimum(stage: Stage) -> None:
    stage.held[ONE.broker].leader.in_sync = Settled(frozenset((ONE,)))
    stage.look()
    stage.everywhere(b"c")
    stage.commit_to(3)


def a_follower_ahead_of_every_leader(stage: Stage) -> None:
    stage.everywhere(b"c")
    stage.held[THREE.broker].high_watermark = 3
    stage.look()


def a_commit_that_one_replica_holds(stage: Stage) -> None:
    stage.held[ONE.broker].leader.in_sync = Settled(frozenset((ONE,)))
    stage.write(ONE, b"c")
    stage.commit_to(3)


def a_reader_that_gets_what_is_not_committed(stage: Stage) -> None:
    stage.everywhere(b"c")
    stage.ghost.delivered(ORDERS, 2, b"c")


def a_reader_that_gets_something_else(stage: Stage) -> None:
    stage.ghost.delivered(ORDERS, 1, b"x")


def a_record_that_is_on_no_disk(stage: Stage) -> None:
    for member in (ONE, TWO, THREE):
        lose_batches(stage, member)
    stage.ghost.lost_disk(ONE.broker)


def a_clean_stop_that_a_power_loss_harms(stage: Stage) -> None:
    lose_batches(stage, TWO)
    stage.ghost.check_untouched(TWO.broker)


def a_producers_batch_that_comes_twice(stage: Stage) -> None:
    for _ in range(2):
        stage.everywhere(b"c", sequence=0)
    stage.commit_to(4)


def a_producers_batch_that_is_missing(stage: Stage) -> None:
    stage.everywhere(b"c", sequence=0)
    stage.everywhere(b"d", sequence=2)
    stage.commit_to(4)


def an_append_without_a_lease(stage: Stage) -> None:
    stage.may_act = False
    stage.look()
    stage.write(ONE, b"c")
    stage.look()


def a_member_that_joins_under_an_old_incarnation(stage: Stage) -> None:
    stage.store(leader=ONE, isr=(ONE, TWO))
    stage.register(BrokerRecord(THREE.broker, Incarnation(9)))
    stage.store(leader=ONE, isr=(ONE, TWO, THREE))


def a_log_that_ends_elsewhere_than_believed(stage: Stage) -> None:
    stage.held[TWO.broker].log.end_offset = 5
    stage.look()


def an_epoch_that_begins_elsewhere_than_believed(stage: Stage) -> None:
    stage.write(TWO, b"c", epoch=4)
    stage.held[TWO.broker].log.epochs = EpochCache([(0, 0)])
    stage.look()


def a_high_watermark_beyond_the_log(stage: Stage) -> None:
    stage.held[TWO.broker].high_watermark = 3
    stage.look()


def a_process_that_lost_something_and_vouches(stage: Stage) -> None:
    stage.ghost.lost_disk(THREE.broker)
    again = Member(THREE.broker, Incarnation(9))
    stage.register(BrokerRecord(again.broker, again.incarnation, clean_since=THREE.incarnation))
    stage._start(again)
    stage.look()


def metadata_that_skipped_a_change(stage: Stage) -> None:
    image = stage.apps[TWO.broker].services.image
    stage.store(leader=ONE, isr=(ONE, TWO))
    image.topics = lambda: (TopicRecord("orders", TOPIC_ID, 1, 3),)
    image.partitions = lambda name: (SimpleNamespace(partition=0, mod_revision=4),)
    image.revision = stage.ghost.store.revision
    stage.look()


def metadata_that_goes_back(stage: Stage) -> None:
    stage.apps[TWO.broker].services.image.revision -= 1
    stage.look()


def a_group_beyond_what_is_committed(stage: Stage) -> None:
    stage.ghost.position_committed(ORDERS, 3)


@pytest.mark.parametrize(
    ("breach", "name"),
    [
        (a_leader_of_a_new_epoch_that_lacks_something, "REP-1"),
        (an_acknowledgement_of_what_is_not_committed, "REP-1"),
        (an_acknowledgement_below_what_was_committed_before, "REP-1"),
        (a_member_in_sync_that_lacks_something, "REP-2"),
        (an_eligible_member_that_lacks_something, "REP-2"),
        (two_replicas_that_differ_below_the_high_watermark, "REP-3"),
        (one_offset_written_twice_in_one_epoch, "REP-3"),
        (a_candidate_that_commits_do_not_wait_for, "REP-4"),
        (a_proposal_that_is_stored_and_not_waited_for, "REP-4"),
        (two_leaders_in_one_epoch, "REP-5"),
        (an_epoch_stored_with_two_leaders, "REP-5"),
        (an_epoch_that_goes_back, "REP-5"),
        (a_high_watermark_beyond_a_member_of_the_maximal_set, "REP-6"),
        (a_high_watermark_that_moves_under_the_minimum, "REP-6"),
        (a_follower_ahead_of_every_leader, "REP-6"),
        (a_commit_that_one_replica_holds, "REP-7"),
        (a_reader_that_gets_what_is_not_committed, "REP-8"),
        (a_reader_that_gets_something_else, "REP-8"),
        (a_record_that_is_on_no_disk, "REP-9"),
        (a_clean_stop_that_a_power_loss_harms, "REP-9"),
        (a_producers_batch_that_comes_twice, "REP-10"),
        (a_producers_batch_that_is_missing, "REP-10"),
        (an_append_without_a_lease, "REP-11"),
        (a_member_that_joins_under_an_old_incarnation, "REP-11"),
        (a_log_that_ends_elsewhere_than_believed, "REP-12"),
        (an_epoch_that_begins_elsewhere_than_believed, "REP-12"),
        (a_high_watermark_beyond_the_log, "REP-12"),
        (a_process_that_lost_something_and_vouches, "REP-13"),
        (metadata_that_skipped_a_change, "REP-14"),
        (metadata_that_goes_back, "REP-14"),
        (a_group_beyond_what_is_committed, "REP-15"),
    ],
    ids=lambda parameter: parameter.__name__ if callable(parameter) else "",
)
def test_every_breach_is_found_by_the_invariants_name(stage: Stage, breach: Callable[[Stage], None], name: str) -> None:
    breach(stage)
    assert name in stage.names, stage.ghost.violations


def test_on_topics_that_flush_before_they_acknowledge_only_what_is_on_the_device_counts() -> None:
    with SimWorld("ghost") as world:
        stage = Stage(world, durable=True)
        stage.everywhere(b"a")
        stage.commit_to(1)
        assert stage.names == {"REP-7"}


def test_what_was_lost_within_the_promise_breaks_nothing(stage: Stage) -> None:
    lose_batches(stage, THREE)
    stage.store(leader=ONE, isr=(ONE, TWO))
    assert stage.ghost.may_lose(THREE.broker)
    stage.ghost.lost_disk(THREE.broker)
    assert not stage.ghost.may_lose(TWO.broker)
    stage.look()
    again = Member(THREE.broker, Incarnation(9))
    stage.register(BrokerRecord(again.broker, again.incarnation))
    stage._start(again)
    stage.write(again, b"a", b"b")
    stage.look()
    assert not stage.ghost.may_lose(TWO.broker)
    stage.store(leader=ONE, isr=(ONE, TWO, again))
    assert stage.ghost.may_lose(TWO.broker)
    assert stage.ghost.violations == []


def test_a_rotten_copy_is_one_less_until_it_is_mended(stage: Stage) -> None:
    stage.ghost.is_rotten = lambda broker: broker == THREE.broker
    assert stage.ghost.may_lose(THREE.broker)
    assert not stage.ghost.may_lose(TWO.broker)
