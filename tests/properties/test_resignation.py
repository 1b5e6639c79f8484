"""Damaged copies that are thrown away while their processes go on: nothing acknowledged is lost.

The world of `test_replication.py`, in which copies also turn out to be damaged. A broker then resigns: its commit
travels like any other message, and it begins with an empty copy when it hears that nothing counts on the old one. Each
guard is also taken away in turn: the same runs must then find a violation.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from martlet.base.ids import BrokerId, LeaderEpoch, Member
from martlet.cluster.controller_decisions import TopicRules
from martlet.cluster.liveness import BrokerStates
from martlet.cluster.partition_plans import check_change
from martlet.cluster.records import PartitionRecord
from martlet.cluster.resignation import has_resigned, resign
from tests.replicated_log import Broker, Copy, ReplicatedPartition, Violation

_RULES = TopicRules(min_in_sync=2)
_STEPS = 600
_MUTANT_SEEDS_MAX = 300


@dataclass
class ResignationOnItsWay:
    by: Member
    partition_epoch: int
    after: PartitionRecord


class DamagedPartition(ReplicatedPartition):
    """One copy at a time is damaged, as at most one may have lost its tail."""

    def __init__(self, seed: int) -> None:
        self.damaged: set[BrokerId] = set()
        self.replaced = 0
        super().__init__(seed)

    def step(self) -> None:
        super().step()
        if not self.random.below(30):
            self.damage()
        if not self.random.below(3):
            self.resign()
        self.check()

    def damage(self) -> None:
        broker = self._any(lambda one: one.running)
        if broker is not None and broker.id not in self.damaged and self._others_are_whole(broker):
            self._note(f"{broker.id} is damaged")
            self.damaged.add(broker.id)

    def resign(self) -> None:
        """A broker that knows of its damage, and of some record, asks the store to let it go."""
        broker = self._any(lambda one: one.running and one.id in self.damaged and one.seen is not None)
        if broker is None or broker.seen is None:
            return
        after = self.resigned(broker, broker.seen)
        if after is not None:
            self.on_their_way.append(
                ResignationOnItsWay(broker.me, broker.seen.mod_revision, after)  # type: ignore[arg-type]
            )

    def resigned(self, broker: Broker, seen: PartitionRecord) -> PartitionRecord | None:
        return resign(seen, broker.id, BrokerStates(dict(self.live)), _RULES)

    def is_given_up(self, broker: Broker, seen: PartitionRecord | None) -> bool:
        """Whether nothing counts on the copy: what was heard before it and what is stored now."""
        epoch = seen.leader_epoch if seen is not None else -1
        return self.partition.leader_epoch > epoch and has_resigned(self.partition, broker.id)

    def _decide(self, message: Any) -> None:
        if not isinstance(message, ResignationOnItsWay):
            super()._decide(message)
        elif self.partition.mod_revision == message.partition_epoch and self.live_incarnation(message.by.broker) == (
            message.by.incarnation
        ):
            self._note(f"{message.by} resigns: {message.after}")
            check_change(self.partition, message.after)
            self._store(message.after)

    def _apply(self, broker: Broker) -> None:
        if broker.id in self.damaged and self.is_given_up(broker, broker.seen):
            self._throw_away(broker)
        super()._apply(broker)

    def _throw_away(self, broker: Broker) -> None:
        self._note(f"{broker.id} begins with an empty copy")
        self.damaged.discard(broker.id)
        self.replaced += 1
        broker.copy, broker.is_lossy = Copy(), True

    def _others_are_whole(self, broker: Broker) -> bool:
        return super()._others_are_whole(broker) and not self.damaged - {broker.id}

    def heal(self) -> None:
        """No more faults, and then none of the damage is left."""
        for _ in range(2_000):
            for broker in self.brokers.values():
                if not broker.running:
                    self.start(broker, clean=not broker.lost_tail)
                self._apply(broker)
            self.elect()
            self.fetch()
            self.propose()
            self.resign()
            self.deliver()
            if not self.random.below(50):
                self.give_up_waiting()
            self.now_ms += 1
            self.check()
        super().heal()


def run(seed: int) -> DamagedPartition:
    partition = DamagedPartition(seed)
    try:
        for _ in range(_STEPS):
            partition.step()
        partition.heal()
    except Violation as violation:
        raise Violation(f"seed {seed}: {violation}\n" + "\n".join(partition.trace[-40:])) from violation
    return partition


@pytest.mark.parametrize("first_seed", range(0, 60, 20))
def test_nothing_acknowledged_is_lost_and_all_copies_are_whole_in_the_end(first_seed: int) -> None:
    runs = [run(seed) for seed in range(first_seed, first_seed + 20)]
    assert sum(len(each.acknowledged) for each in runs) > 100, "an idle partition proves nothing"
    assert sum(each.replaced for each in runs) > 20
    for each in runs:
        assert not each.damaged
        assert len(each.partition.isr) == 3, each.partition
        values = [[record.value for record in one.copy.records] for one in each.brokers.values()]
        assert values[0] == values[1] == values[2]


def resigning_without_a_new_epoch(patch: pytest.MonkeyPatch) -> None:
    def resigned(self: DamagedPartition, broker: Broker, seen: PartitionRecord) -> PartitionRecord | None:
        after = resign(seen, broker.id, BrokerStates(dict(self.live)), _RULES)
        if after is None or after.leader != seen.leader or after.leader_incarnation != seen.leader_incarnation:
            return after
        return replace(after, leader_epoch=LeaderEpoch(seen.leader_epoch))

    def is_given_up(self: DamagedPartition, broker: Broker, seen: PartitionRecord | None) -> bool:
        is_news = seen is None or seen.mod_revision < self.partition.mod_revision
        return is_news and has_resigned(self.partition, broker.id)

    patch.setattr(DamagedPartition, "resigned", resigned)
    patch.setattr(DamagedPartition, "is_given_up", is_given_up)


def giving_up_within_an_epoch(patch: pytest.MonkeyPatch) -> None:
    """As when the leader has dropped the copy for its slowness, in an epoch in which it has fetched."""

    def is_given_up(self: DamagedPartition, broker: Broker, seen: PartitionRecord | None) -> bool:
        entries = (*self.partition.isr, *self.partition.elr)
        return seen is not None and all(entry.broker != broker.id for entry in entries)

    patch.setattr(DamagedPartition, "is_given_up", is_given_up)


def giving_up_what_still_counts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DamagedPartition, "is_given_up", lambda self, broker, seen: seen is not None)


def staying_eligible(patch: pytest.MonkeyPatch) -> None:
    """Only the in-sync set is left, as when a copy is slow."""

    def resigned(self: DamagedPartition, broker: Broker, seen: PartitionRecord) -> PartitionRecord | None:
        after = resign(seen, broker.id, BrokerStates(dict(self.live)), _RULES)
        return None if after is None else replace(after, elr=(*after.elr, broker.me))

    def is_given_up(self: DamagedPartition, broker: Broker, seen: PartitionRecord | None) -> bool:
        epoch = seen.leader_epoch if seen is not None else -1
        is_in_sync = any(entry.broker == broker.id for entry in self.partition.isr)
        return self.partition.leader_epoch > epoch and self.partition.leader is not None and not is_in_sync

    patch.setattr(DamagedPartition, "resigned", resigned)
    patch.setattr(DamagedPartition, "is_given_up", is_given_up)


@pytest.mark.parametrize(
    "remove_guard",
    [resigning_without_a_new_epoch, giving_up_within_an_epoch, giving_up_what_still_counts, staying_eligible],
    ids=lambda guard: guard.__name__,
)
def test_a_missing_guard_is_found(
    remove_guard: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    remove_guard(monkeypatch)
    for seed in range(_MUTANT_SEEDS_MAX):
        partition = DamagedPartition(seed)
        try:
            for _ in range(_STEPS):
                partition.step()
        except (Violation, IndexError) as found:
            print(f"seed {seed}: {found}")
            return
    pytest.fail(f"{_MUTANT_SEEDS_MAX} seeds did not notice")
