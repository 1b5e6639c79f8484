"""What strikes a simulated cluster: machines, disks, network, clocks and the metadata store, one fault at a time.

Every fault is drawn when the run is planned (when, what, how long) and finds its victim when it strikes: half of the
time the process that leads something then. Power losses and wiped disks are held back while the promise does not
cover one more of them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from martlet.base.ids import BrokerId, TopicPartition
from martlet.cluster.keys import PARTITION_PREFIX, live_key, partition_key
from martlet.cluster.records import encode_record
from martlet.cluster.replica_decisions import elect_leader
from sim.link import LinkQuality
from sim.remote_store import STORE_NAME, CommitFault
from sim.scheduler import NS_PER_MS

if TYPE_CHECKING:
    from sim.cluster_run import ClusterRun

_MINUTE_MS: Final = 60_000
_BURST_MS: Final = 1_500
_LOOK_MS: Final = 5
_LOOKS_MAX: Final = 400


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing to go wrong."""

    at_ms: int
    kind: str
    length_ms: int
    draw: int
    """Decides what is left to decide when it strikes."""


class Faults:
    """Plans and carries out the faults of one run; `struck` tells which came to pass."""

    def __init__(self, run: "ClusterRun") -> None:
        self.run = run
        self.world = run.world
        self.struck: list[str] = []
        self._kinds: dict[str, tuple[int, Callable[[Fault, BrokerId], bool | None]]] = {
            "kill": (6, self._kill),
            "power loss": (5, self._power_loss),
            "wipe": (2, self._wipe),
            "crash at a disk change": (3, self._crash_at_disk_change),
            "pause": (5, self._pause),
            "clean stop": (3, self._clean_stop),
            "clean stop and power loss": (2, self._clean_stop_and_power_loss),
            "isolate": (3, self._isolate),
            "cut": (4, self._cut),
            "cut one way": (5, self._cut_one_way),
            "reset": (2, self._reset),
            "slow": (2, self._slow),
            "drip": (1, self._drip),
            "disk stall": (2, self._stall),
            "failing sync": (1, self._failing_sync),
            "failing write": (1, self._failing_write),
            "clock jump": (1, self._clock_jump),
            "commit lost before": (3, partial(self._lose_commit, CommitFault.BEFORE)),
            "commit lost after": (4, partial(self._lose_commit, CommitFault.AFTER)),
            "commit late": (3, partial(self._lose_commit, CommitFault.LATE)),
            "commit lost and watch lag": (4, partial(self._lose_commit, CommitFault.DEAF)),
            "watch lag": (4, self._watch_lag),
            "watch broken": (1, self._watch_broken),
            "watch lag and compaction": (2, self._watch_lag_and_compaction),
            "lease ends early": (4, self._lease_early),
            "leases end late": (1, self._leases_late),
            "store outage": (2, self._store_outage),
            "leader away and back": (4, self._leader_away_and_back),
            "leader gone before a join": (4, self._leader_gone_before_a_join),
            "publisher crash": (1, self._publisher_crash),
        }

    def plan(self, begin_ms: int, end_ms: int, count: int) -> None:
        """Draw so many faults for that time: of a few kinds or of all, spread out or close together."""
        draw = self.world.workload.below
        kinds = [kind for kind, (weight, _) in self._kinds.items() for _ in range(weight)]
        if draw(2):
            kinds = [kinds[draw(len(kinds))] for _ in range(3 + draw(5))]
        bursts = [begin_ms + draw(end_ms - begin_ms) for _ in range(1 + draw(4))] if draw(2) else []
        for _ in range(count):
            at_ms = begin_ms + draw(end_ms - begin_ms)
            if bursts:
                at_ms = min(end_ms - 1, bursts[draw(len(bursts))] + draw(_BURST_MS))
            # Short ones more often than long ones; up to twice a lease.
            length_ms = 50 + draw(1 + draw(2 * self.run.lease_ms))
            fault = Fault(at_ms, kinds[draw(len(kinds))], length_ms, draw(1 << 30))
            self.world.at_ms(fault.at_ms, partial(self._strike, fault))

    def _strike(self, fault: Fault) -> None:
        if self.run.is_over:
            return
        victim = self._victim(fault)
        strike = self._kinds[fault.kind][1]
        if strike(fault, victim) is not False:
            self.struck.append(f"{fault.at_ms} {fault.kind} {victim} for {fault.length_ms}")
            self.world.scheduler.note("fault", f"{fault.kind} {victim} {fault.length_ms}")

    def _victim(self, fault: Fault) -> BrokerId:
        brokers = list(self.run.brokers)
        if fault.draw % 2:
            leaders = [
                record.leader for record in self.run.ghost.store.partitions.values() if record.leader is not None
            ]
            if leaders:
                return leaders[fault.draw // 2 % len(leaders)]
        return brokers[fault.draw // 2 % len(brokers)]

    def _end_ms(self, fault: Fault) -> int:
        return self.world.now_ms + fault.length_ms

    # --- processes and machines

    def _kill(self, fault: Fault, victim: BrokerId) -> None:
        self.run.stay_down(victim, self._end_ms(fault))
        self.run.brokers[victim].crash(power_loss=False)

    def _power_loss(self, fault: Fault, victim: BrokerId) -> bool:
        if not self.run.may_lose(victim):
            return False
        self.run.stay_down(victim, self._end_ms(fault))
        self.run.brokers[victim].crash(power_loss=True)
        return True

    def _wipe(self, fault: Fault, victim: BrokerId) -> bool:
        if not self.run.may_lose(victim):
            return False
        self.run.stay_down(victim, self._end_ms(fault))
        self.run.wipe(victim)
        return True

    def _crash_at_disk_change(self, fault: Fault, victim: BrokerId) -> bool:
        host = self.run.brokers[victim]
        host.dies_by_power = bool(fault.draw & 2) and self.run.may_lose(victim)
        if not host.is_running:
            return False
        if host.dies_by_power:
            self.run.armed.append(victim)
        self.run.stay_down(victim, self._end_ms(fault))
        host.disk.stop_after(fault.draw % 40)
        return True

    def _pause(self, fault: Fault, victim: BrokerId) -> bool:
        self.run.brokers[victim].pause(2 * fault.length_ms)
        return self.run.brokers[victim].is_running

    def _clean_stop(self, fault: Fault, victim: BrokerId) -> None:
        self.run.stay_down(victim, self._end_ms(fault))
        self.run.stop_requests[victim].send()

    def _clean_stop_and_power_loss(self, fault: Fault, victim: BrokerId) -> None:
        self.run.stay_down(victim, self.world.now_ms + _MINUTE_MS)
        self.run.stop_requests[victim].send()
        self.world.at_ms(self.world.now_ms + 3_000, partial(self._power_off, victim))

    def _power_off(self, victim: BrokerId) -> None:
        """Once it has stopped cleanly, nothing can be lost any more; if it has not, leave it."""
        self.run.stay_down(victim, self.world.now_ms)
        if not self.run.brokers[victim].is_running and self.run.has_stopped_cleanly(victim):
            self.run.brokers[victim].crash(power_loss=True)

    def _publisher_crash(self, fault: Fault, victim: BrokerId) -> None:
        self.run.restart_publisher(fault.draw // 2)

    # --- network

    def _others(self, victim: BrokerId) -> list[str]:
        brokers = [host.name for broker, host in self.run.brokers.items() if broker != victim]
        return [*brokers, *brokers, STORE_NAME, *(host.name for host in self.run.client_hosts)]

    def _pair(self, fault: Fault, victim: BrokerId) -> tuple[str, str]:
        others = self._others(victim)
        pair = self.run.brokers[victim].name, others[fault.draw // 8 % len(others)]
        return pair if fault.draw & 4 else pair[::-1]

    def _isolate(self, fault: Fault, victim: BrokerId) -> None:
        network, name = self.world.network, self.run.brokers[victim].name
        network.isolate(name)
        for other in dict.fromkeys(self._others(victim)):
            # One link after the other comes back.
            heal_at_ms = self._end_ms(fault) + self.world.workload.below(500)
            self.world.at_ms(heal_at_ms, partial(network.heal, name, other))

    def _cut(self, fault: Fault, victim: BrokerId) -> None:
        pair = self._pair(fault, victim)
        self.world.network.cut(*pair)
        self.world.at_ms(self._end_ms(fault), partial(self.world.network.heal, *pair))

    def _cut_one_way(self, fault: Fault, victim: BrokerId) -> None:
        pair = self._pair(fault, victim)
        self.world.network.cut_one_way(*pair)
        self.world.at_ms(self._end_ms(fault), partial(self.world.network.heal, *pair))

    def _reset(self, fault: Fault, victim: BrokerId) -> None:
        self.world.network.reset(*self._pair(fault, victim))

    def _slow(self, fault: Fault, victim: BrokerId) -> None:
        """Packets take up to a second."""
        quality = self.world.network.link(*self._pair(fault, victim)).quality
        slowest = 10 + fault.draw % 1_000
        quality.latency_ns_min, quality.latency_ns_max = slowest * NS_PER_MS // 2, slowest * NS_PER_MS
        self.world.at_ms(self._end_ms(fault), partial(_restore, quality, self.run.quality))

    def _drip(self, fault: Fault, victim: BrokerId) -> None:
        pair = self._pair(fault, victim)
        self.world.network.slow_drip(*pair, 1 + fault.draw % 50)
        self.world.at_ms(self._end_ms(fault), partial(self.world.network.slow_drip, *pair, None))

    # --- disks and clocks

    def _stall(self, fault: Fault, victim: BrokerId) -> None:
        self.run.brokers[victim].stall_disk(2 * fault.length_ms)

    def _failing_sync(self, fault: Fault, victim: BrokerId) -> bool:
        self.run.brokers[victim].disk.fail_next_sync()
        return self.run.brokers[victim].is_running

    def _failing_write(self, fault: Fault, victim: BrokerId) -> bool:
        self.run.brokers[victim].disk.fail_next_write()
        return self.run.brokers[victim].is_running

    def _clock_jump(self, fault: Fault, victim: BrokerId) -> None:
        self.run.brokers[victim].clock.jump(fault.draw % _MINUTE_MS - _MINUTE_MS // 2)

    # --- the store

    def _lose_commit(self, kind: CommitFault, fault: Fault, victim: BrokerId) -> None:
        of = ("", PARTITION_PREFIX, PARTITION_PREFIX)[fault.draw // 8 % 3]
        for _ in range(1 + fault.draw // 2 % 3):
            self.world.store_server.lose_next_commit(kind, of=of)

    def _watch_lag(self, fault: Fault, victim: BrokerId) -> None:
        server = self.world.store_server
        server.hold_watches(self.run.brokers[victim].name)
        self.world.at_ms(self._end_ms(fault), server.release_watches)

    def _watch_broken(self, fault: Fault, victim: BrokerId) -> None:
        self.world.store_server.break_watches()

    def _watch_lag_and_compaction(self, fault: Fault, victim: BrokerId) -> None:
        self._watch_lag(fault, victim)
        server = self.world.store_server
        self.world.at_ms(self._end_ms(fault) - 1, server.state.compact)

    def _lease_early(self, fault: Fault, victim: BrokerId) -> None:
        self.world.store_server.state.end_lease_of(live_key(victim))

    def _leases_late(self, fault: Fault, victim: BrokerId) -> None:
        self.world.store_server.state.restart_leases(self.world.clock.now_ms())

    def _store_outage(self, fault: Fault, victim: BrokerId) -> None:
        server = self.world.store_server
        server.stop()
        self.world.at_ms(self._end_ms(fault), server.heal)

    # --- leaderships

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
        self.world.at_ms(self.world.now_ms + _LOOK_MS * _LOOKS_MAX + longer_ms, partial(self.world.network.heal, *pair))

    def _slow_down(self, source: BrokerId, target: BrokerId, latency_ms: int, longer_ms: int) -> None:
        """Packets one way take so long while something is waited for, and for some time after."""
        quality = self.world.network.link(self.run.brokers[source].name, self.run.brokers[target].name).quality
        quality.latency_ns_min = quality.latency_ns_max = latency_ms * NS_PER_MS
        until_ms = self.world.now_ms + _LOOK_MS * _LOOKS_MAX + longer_ms
        self.world.at_ms(until_ms, partial(_restore, quality, self.run.quality))

    def _when(self, condition: Callable[[], bool], then: Callable[[], None], looks: int = 1) -> None:
        """As soon as it is so, if it is so soon."""
        if condition():
            then()
        elif looks < _LOOKS_MAX:
            self.world.at_ms(self.world.now_ms + _LOOK_MS, partial(self._when, condition, then, looks + 1))

    def _hand_over(self, partition: TopicPartition, leader: BrokerId) -> None:
        """The controller lets this one lead, as it does for preferred leaders; not when it is not in sync."""
        witness, server = self.run.ghost.store, self.world.store_server
        record = witness.partitions[partition]
        alive = {broker: registered for broker, registered in witness.brokers.items() if witness.is_alive(broker)}
        after = elect_leader(record, alive, self.run.ghost.min_in_sync, preferred=leader).partition
        if server.is_up and after.leader == leader != record.leader:
            key = partition_key(record.topic_id, record.partition)
            server.state.apply({key: record.mod_revision}, {key: encode_record(after)}, (), (), None)


def _restore(quality: LinkQuality, usual: LinkQuality) -> None:
    quality.latency_ns_min, quality.latency_ns_max = usual.latency_ns_min, usual.latency_ns_max
