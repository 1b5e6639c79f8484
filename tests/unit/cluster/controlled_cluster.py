"""A cluster reduced to its metadata: brokers that start, stop and lose leases, leaders that take followers back.

What a real broker would do is done here by committing the same plans to a store in memory. Every commit is looked at:
what `check` finds wrong would be wrong in any cluster.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from martlet.base.ids import BrokerId, Member, TopicPartition
from martlet.cluster.broker_decisions import Registration, plan_registration
from martlet.cluster.controller_decisions import IMBALANCE_PERCENT, plan_in_sync_change, topic_rules
from martlet.cluster.controller_round import RoundOptions, plan_round
from martlet.cluster.image import ImageDelta, MetadataImage
from martlet.cluster.keys import INCARNATION_COUNTER_KEY, broker_key, live_key
from martlet.cluster.liveness import BrokerStates, plan_alive, read_states
from martlet.cluster.partition_moves import MOVES_MAX
from martlet.cluster.partition_plans import PARTITIONS_PER_COMMIT, PartitionsPlan
from martlet.cluster.placement import Site, place_partitions, sites_of
from martlet.cluster.records import PartitionRecord, TopicRecord
from martlet.cluster.store import CommitPlan, check_commit
from martlet.cluster.topic_decisions import TopicDefaults, TopicWish, design_topic, plan_topic
from tests.unit.cluster.images import FollowedStore, topic_id


@dataclass
class ControlledCluster:
    """The store, and which processes run; `racks` names the brokers there are."""

    racks: dict[int, str | None]
    store: FollowedStore = field(default_factory=FollowedStore)
    running: set[int] = field(default_factory=set)
    leaders: dict[tuple[TopicPartition, int], Member] = field(default_factory=dict)
    logs_of: dict[int, set[int]] = field(default_factory=dict)
    """Of which starts each broker's disk still holds the logs: what is true, whatever the registration says."""

    def __post_init__(self) -> None:
        for broker in self.racks:
            self.start(broker)

    @property
    def image(self) -> MetadataImage:
        return self.store.image

    @property
    def states(self) -> BrokerStates:
        return read_states(self.image)

    def snapshot(self) -> MetadataImage:
        """An image that will grow old."""
        image = MetadataImage()
        image.load(self.store.listing())
        return image

    # --- brokers

    def start(self, broker: int, *, clean: bool = False, same_logs: bool = False) -> None:
        """A new process; it may replace one that runs. Neither clean nor with the same logs: its disk is empty."""
        key = broker_key(BrokerId(broker))
        plan = plan_registration(
            Registration(id=BrokerId(broker), rack=self.racks[broker], clean=clean, same_logs=same_logs),
            cluster=self.store.entries.get("cluster/id"),
            broker=self.store.entries.get(key),
            counter=self.store.entries.get(INCARNATION_COUNTER_KEY),
            new_cluster_id="c",
            now_ms=0,
        )
        self.commit(plan.commit)
        kept = self.logs_of.get(broker, set()) if clean or same_logs else set()
        self.logs_of[broker] = {*kept, plan.broker.incarnation}
        self.running.add(broker)
        self.show(broker)

    def show(self, broker: int, *, leaving: bool = False, full: bool = False) -> None:
        """The process gets its lease, or another one, or says that it leaves, or that its disk is full."""
        record = self.image.broker(BrokerId(broker))
        assert record is not None
        self.commit(plan_alive(record, self.image.live(BrokerId(broker)), leaving=leaving, full=full))

    def lose_lease(self, broker: int) -> None:
        self.commit(CommitPlan(deletes=(live_key(BrokerId(broker)),)))

    def stop(self, broker: int) -> None:
        self.running.discard(broker)
        self.lose_lease(broker)

    # --- topics

    def make_topic(
        self, name: str, replicas: Sequence[Sequence[int]], configs: dict[str, str] | None = None
    ) -> TopicRecord:
        wish = TopicWish(name=name, assignments=dict(enumerate(replicas)), configs=configs or {})
        number = topic_id(len(self.image.topics()) + 1)
        design = design_topic(wish, self.image, TopicDefaults(), topic_id=number, now_ms=0)
        self.commit(plan_topic(design))
        return design.record

    def place_topic(self, name: str, partitions: int, factor: int, configs: dict[str, str] | None = None) -> None:
        placed = place_partitions(self.sites(), count=partitions, replication_factor=factor)
        self.make_topic(name, placed, configs)

    def sites(self) -> list[Site]:
        return sites_of(self.states.placeable)

    def partition(self, name: str = "t", index: int = 0) -> PartitionRecord:
        found = self.image.partition(name, index)
        assert found is not None
        return found

    def partitions(self) -> Iterable[tuple[TopicRecord, PartitionRecord]]:
        for topic in self.image.topics():
            for partition in self.image.partitions(topic.name):
                yield topic, partition

    # --- commits

    def commit(self, plan: CommitPlan) -> ImageDelta:
        check_commit(plan.compares, plan.puts, plan.deletes, plan.delete_prefixes)
        delta = self.store.commit(plan)
        self._check(delta)
        return delta

    def offer(self, plan: CommitPlan) -> bool:
        """Commit the plan if all that it compares is so."""
        for key, expected in plan.compares.items():
            found = self.store.entries.get(key)
            if (found.mod_revision if found else 0) != expected:
                return False
        self.commit(plan)
        return True

    def round(
        self,
        image: MetadataImage | None = None,
        states: BrokerStates | None = None,
        *,
        partitions_per_commit: int = PARTITIONS_PER_COMMIT,
        moves_max: int = MOVES_MAX,
        imbalance_percent: int | None = IMBALANCE_PERCENT,
    ) -> list[PartitionsPlan]:
        """A controller's round, on the newest image or an older one; returns what went through."""
        image = image if image is not None else self.image
        states = states if states is not None else read_states(image)
        options = RoundOptions(
            partitions_per_commit=partitions_per_commit, moves_max=moves_max, imbalance_percent=imbalance_percent
        )
        plans = list(plan_round(image, states, options=options))
        return [plan for plan in plans if self.offer(plan.commit)]

    def settle(self, rounds_max: int = 50) -> int:
        """Rounds until nothing more is to be done; returns how many it took."""
        for number in range(rounds_max):
            if not self.round():
                return number
        raise AssertionError(f"the controller still has work after {rounds_max} rounds")

    def catch_up(self, wanted: Iterable[TopicPartition] | None = None) -> int:
        """Every working leader takes all running followers into its in-sync set; returns how many sets changed."""
        chosen = None if wanted is None else set(wanted)
        changed = 0
        for topic, partition in list(self.partitions()):
            if chosen is None or TopicPartition(topic.name, partition.partition) in chosen:
                changed += self._propose_all(topic, partition)
        return changed

    def _propose_all(self, topic: TopicRecord, partition: PartitionRecord) -> bool:
        states = self.states
        leader = states.alive.get(partition.leader) if partition.leader is not None else None
        if leader is None or leader.incarnation != partition.leader_incarnation or leader.id not in self.running:
            return False
        members = {
            Member(record.id, record.incarnation)
            for broker in partition.replicas
            if broker in self.running
            and (record := states.alive.get(broker)) is not None
            and (broker not in states.leaving or record.id in partition.isr_ids())
        }
        if members == set(partition.isr):
            return False
        plan = plan_in_sync_change(
            partition,
            members,
            self.image,
            states,
            partition_epoch=partition.mod_revision,
            min_in_sync=topic_rules(topic).min_in_sync,
        )
        return plan is not None and self.offer(plan)

    # --- what must hold

    def _check(self, delta: ImageDelta) -> None:
        for change in delta.partitions:
            before, after = change.before, change.after
            if after is None:
                continue
            replicas = set(after.replicas)
            assert len(replicas) == len(after.replicas) > 0
            assert after.leader is None or after.leader in after.isr_ids(), f"the leader is in sync: {after}"
            assert set(after.isr_ids()) <= replicas, f"who is in sync is a replica: {after}"
            assert {member.broker for member in after.elr} <= replicas, f"who is eligible is a replica: {after}"
            assert set(after.adding) | set(after.removing) <= replicas
            assert after.isr or after.elr, f"a replica holds what was acknowledged: {after}"
            if before is not None:
                assert after.leader_epoch >= before.leader_epoch, f"no epoch goes back: {before} {after}"
            if after.leader is not None and after.leader_incarnation is not None:
                where = (TopicPartition(change.topic, after.partition), after.leader_epoch)
                leader = Member(after.leader, after.leader_incarnation)
                known = self.leaders.setdefault(where, leader)
                assert known == leader, f"epoch {after.leader_epoch} has the leaders {known} and {leader}"
