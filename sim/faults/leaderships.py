"""Leaderships that move at the worst moment: while a fetch is on its way, before a follower joins.

Chance alone hits these moments too seldom, so each waits for its moment, for a while, and then has the leader changed.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from martlet.base.ids import BrokerId, TopicPartition
from martlet.cluster.keys import live_key, partition_key
from martlet.cluster.records import encode_record
from martlet.cluster.replica_decisions import elect_leader
from sim.faults.fault import Fault, FaultKind, restore
from sim.scheduler import NS_PER_MS

if TYPE_CHECKING:
    from sim.cluster_run import ClusterRun

_CHECK_INTERVAL_MS: Final = 5
_CHECKS_MAX: Final = 400


class LeadershipFaults:
    """Leaderships that move at the worst moment."""

    def __init__(self, run: "ClusterRun") -> None:
        self.run = run
        self.world = run.world
        self.kinds: dict[str, FaultKind] = {
            "leader away and back": (4, self._leader_away_and_back),
            "leader gone before a join": (4, self._leader_gone_before_a_join),
        }

    def _leader_away_and_back(self, fault: Fault, victim: BrokerId) -> bool:
        """A follower that lacks something leads for a moment, while a fetch is on its way to the leader before it.

        What that fetch says was true when it was sent. Then its sender goes back to what the leader in between has, and
        when it arrives the leader from before leads again.
        """
        partition, behind, ahead = self._led_by(fault, victim)
        if partition is None:
            return False
        ghost, away_ms = self.run.ghost, self._until_led_ms
        self._cut_off(victim, behind, away_ms)
        self._slow_down(ahead, victim, 2 * away_ms + fault.draw % 300, away_ms)

        def hand_back() -> None:
            self._hand_over(partition, victim)
            self.world.network.heal(self.run.brokers[victim].name, self.run.brokers[behind].name)

        def hand_over() -> None:
            self._hand_over(partition, behind)
            self.world.at_ms(self.world.now_ms + away_ms, hand_back)

        self._when(lambda: ghost.end_offset(behind, partition) < ghost.end_offset(ahead, partition), hand_over)
        return True

    def _leader_gone_before_a_join(self, fault: Fault, victim: BrokerId) -> bool:
        """A follower that is not in sync meets a new leader that does not know yet how much is committed.

        It holds as much as the new leader knows to be committed, and lacks some of what is.
        """
        partition, lacking, heir = self._led_by(fault, victim)
        if partition is None:
            return False
        ghost = self.run.ghost
        self._slow_down(victim, heir, self._until_led_ms + 400 + fault.draw % 400, self._until_led_ms)
        self._cut_off(victim, lacking, self._until_led_ms)
        self.world.store_server.state.end_lease_of(live_key(lacking))

        def is_behind() -> bool:
            end_offset = ghost.end_offset(lacking, partition)
            is_out = lacking not in [member.broker for member in ghost.store.partitions[partition].isr]
            lags = ghost.high_watermark(heir, partition) <= end_offset < ghost.end_offset(heir, partition)
            return is_out and lags and ghost.store.is_alive(lacking)

        self._when(is_behind, partial(self._hand_over, partition, heir))
        return True

    @property
    def _until_led_ms(self) -> int:
        """As long as it takes to hear of another leader, to connect to it and to compare the logs."""
        return 100 + 10 * self.run.quality.latency_ns_max // NS_PER_MS

    def _led_by(self, fault: Fault, victim: BrokerId) -> tuple[TopicPartition | None, BrokerId, BrokerId]:
        """A partition that it leads, if there is one, and the two others."""
        partitions = self.run.ghost.store.partitions
        led = [partition for partition, record in partitions.items() if record.leader == victim]
        one, other = [broker for broker in self.run.brokers if broker != victim]
        partition = led[fault.draw // 8 % len(led)] if led else None
        return (partition, one, other) if fault.draw & 4 else (partition, other, one)

    def _cut_off(self, one: BrokerId, other: BrokerId, longer_ms: int) -> None:
        """Cut two brokers off from one another while something is waited for, and so much longer."""
        pair = self.run.brokers[one].name, self.run.brokers[other].name
        self.world.network.cut(*pair)
        self.world.at_ms(
            self.world.now_ms + _CHECK_INTERVAL_MS * _CHECKS_MAX + longer_ms, partial(self.world.network.heal, *pair)
        )

    def _slow_down(self, source: BrokerId, target: BrokerId, latency_ms: int, longer_ms: int) -> None:
        """Packets one way take so long while something is waited for, and for some time after."""
        quality = self.world.network.link(self.run.brokers[source].name, self.run.brokers[target].name).quality
        quality.latency_ns_min = quality.latency_ns_max = latency_ms * NS_PER_MS
        until_ms = self.world.now_ms + _CHECK_INTERVAL_MS * _CHECKS_MAX + longer_ms
        self.world.at_ms(until_ms, partial(restore, quality, self.run.quality))

    def _when(self, condition: Callable[[], bool], then: Callable[[], None], checks: int = 1) -> None:
        """As soon as it is so, if it is so soon."""
        if condition():
            then()
        elif checks < _CHECKS_MAX:
            self.world.at_ms(self.world.now_ms + _CHECK_INTERVAL_MS, partial(self._when, condition, then, checks + 1))

    def _hand_over(self, partition: TopicPartition, leader: BrokerId) -> None:
        """The controller lets this one lead, as it does for preferred leaders; not when it is not in sync."""
        witness, server = self.run.ghost.store, self.world.store_server
        record = witness.partitions[partition]
        alive = {broker: registered for broker, registered in witness.brokers.items() if witness.is_alive(broker)}
        after = elect_leader(record, alive, self.run.ghost.min_in_sync, preferred=leader).partition
        if server.is_up and after.leader == leader != record.leader:
            key = partition_key(record.topic_id, record.partition)
            server.state.apply({key: record.mod_revision}, {key: encode_record(after)}, (), (), None)
