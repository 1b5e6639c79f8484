"""Brokers that all lost power say how far their logs go, and an operator's election takes the longest."""

import pytest
from sim.remote_store import CommitFault
from sim.world import SimWorld

from martlet.base.ids import TopicPartition
from tests.unit.broker.simulated_members import LOG_DIRECTORY, in_sync_of, start_members

T0 = TopicPartition("t", 0)


@pytest.mark.parametrize("fault", [None, CommitFault.BEFORE, CommitFault.AFTER])
def test_after_a_power_cut_of_all_brokers_the_longest_log_is_chosen(fault: CommitFault | None) -> None:
    with SimWorld(f"power cut {fault}") as world:
        members = start_members(world, 3)
        one, two, three = members
        one.create_topic("t", 1, 2, 3, **{"min.insync.replicas": "2", "martlet.flush": "commit"})
        world.run_until(lambda: len(in_sync_of(one, "t")) == 3, 20_000)
        one.append("t")
        one.append("t")
        world.run_until(lambda: all(_end_of(member) == 2 for member in members), 20_000)
        world.run_for(10_000)
        for member in members:
            member.kill(power_loss=True)
        # The first replica's disk is gone, and the second one's log is not what it was.
        one.host.disk.remove_tree(LOG_DIRECTORY.format(1))
        two.host.disk.remove_tree(f"{LOG_DIRECTORY.format(2)}/t-0")
        for member in members:
            member.begin()
        world.run_until(lambda: all(member.is_serving for member in members), 60_000)
        if fault is not None:
            world.store_server.lose_next_commit(fault)
        world.run_until(lambda: len(three.partition("t").log_ends) == 3, 60_000)
        assert three.partition("t").leader is None
        assert {end.broker: end.offset for end in three.partition("t").log_ends} == {1: 0, 2: 0, 3: 2}
        assert three.call(lambda services: services.partition_admin.elect_leaders([T0], unclean=True)) == {T0: None}
        world.run_until(lambda: in_sync_of(three, "t") == {1, 2, 3}, 30_000)
        assert three.partition("t").leader == 3
        assert three.partition("t").log_ends == ()
        assert all(_end_of(member) == 2 for member in members)


def test_a_leader_epoch_that_never_was_wins_no_election() -> None:
    with SimWorld("epoch") as world:
        members = start_members(world, 3)
        one, two, three = members
        one.create_topic("t", 1, 2, 3, **{"min.insync.replicas": "2", "martlet.flush": "commit"})
        world.run_until(lambda: len(in_sync_of(one, "t")) == 3, 20_000)
        one.append("t")
        one.append("t")
        world.run_until(lambda: all(_end_of(member) == 2 for member in members), 20_000)
        for member in members:
            member.kill(power_loss=True)
        one.host.disk.remove_tree(LOG_DIRECTORY.format(1))
        path = f"{LOG_DIRECTORY.format(2)}/t-0/{0:020d}.log"
        content = two.host.disk.read_file(path) or b""
        # The last batch: no checksum covers its leader epoch.
        two.host.disk.overwrite(path, len(content) // 2 + 12, (1_000_000).to_bytes(4, "big"))
        for member in members:
            member.begin()
        world.run_until(lambda: all(member.is_serving for member in members), 60_000)
        world.run_until(lambda: len(three.partition("t").log_ends) == 3, 60_000)
        assert three.call(lambda services: services.partition_admin.elect_leaders([T0], unclean=True)) == {T0: None}
        world.run_until(lambda: in_sync_of(three, "t") == {1, 2, 3}, 30_000)
        assert three.partition("t").leader == 3


def _end_of(member: object) -> int:
    log = member.services.logs.get(T0)  # type: ignore[attr-defined]
    return -1 if log is None else log.end_offset
