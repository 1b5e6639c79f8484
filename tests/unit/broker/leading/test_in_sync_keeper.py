"""In-sync sets on their way to the store: whatever becomes of a commit, the leader learns it and goes on."""

import pytest
from sim.remote_store import STORE_NAME, CommitFault
from sim.world import SimWorld

from martlet.base.ids import BrokerId, TopicPartition
from martlet.replication.in_sync import Settled
from tests.unit.broker.simulated_members import SimMember, in_sync_of, start_members


def leader_state(member: SimMember, topic: str) -> object:
    partition = member.services.partitions.hosted(topic, 0)
    assert partition is not None
    assert partition.leader is not None
    return partition.leader.in_sync


def three_in_sync(world: SimWorld) -> list[SimMember]:
    members = start_members(world, 3)
    members[0].create_topic("t", 1, 2, 3)
    world.run_until(lambda: all(len(in_sync_of(member, "t")) == 3 for member in members), 10_000)
    return members


def test_a_follower_that_does_not_keep_up_goes_and_comes_back() -> None:
    with SimWorld(1) as world:
        one, two, _ = three_in_sync(world)
        world.network.cut("broker1", "broker2")
        one.append("t")
        world.run_until(lambda: in_sync_of(one, "t") == {1, 3}, 20_000)
        assert two.may_act(), "only its way to the leader is cut"
        assert one.partition("t").leader_epoch == 0
        world.network.heal("broker1", "broker2")
        world.run_until(lambda: in_sync_of(one, "t") == {1, 2, 3}, 20_000)
        assert isinstance(leader_state(one, "t"), Settled)


@pytest.mark.parametrize("fault", list(CommitFault))
def test_a_change_without_an_answer_is_settled_in_the_end(fault: CommitFault) -> None:
    with SimWorld(f"in sync {fault.name}") as world:
        one, _, _ = three_in_sync(world)
        world.network.cut("broker1", "broker2")
        one.append("t")
        world.run_for(2_500)
        world.store_server.lose_next_commit(fault)
        world.run_until(lambda: in_sync_of(one, "t") == {1, 3}, 30_000)
        world.network.heal("broker1", "broker2")
        world.run_until(lambda: in_sync_of(one, "t") == {1, 2, 3}, 30_000)
        world.run_for(10_000)
        assert isinstance(leader_state(one, "t"), Settled)
        assert in_sync_of(one, "t") == {1, 2, 3}


def test_a_leader_that_is_cut_off_from_the_store_changes_nothing_and_goes_on_later() -> None:
    with SimWorld(2) as world:
        one, two, _ = three_in_sync(world)
        world.network.cut("broker1", "broker2")
        world.network.cut("broker1", STORE_NAME)
        world.run_until(lambda: two.partition("t").leader not in (None, 1), 30_000)
        world.network.heal_all()
        world.run_until(lambda: all(in_sync_of(member, "t") == {1, 2, 3} for member in (one, two)), 60_000)
        assert one.partition("t").leader != 1


def test_many_partitions_are_settled_by_few_commits() -> None:
    with SimWorld(3) as world:
        one, two, three = start_members(world, 3)
        for number in range(40):
            one.create_topic(f"t{number}", 1, 2, 3)
        world.run_until(lambda: all(len(in_sync_of(one, f"t{n}")) == 3 for n in range(40)), 20_000)
        before = world.store_server.state.revision
        two.stop()
        two.start()
        world.run_until(lambda: all(len(in_sync_of(one, f"t{n}")) == 3 for n in range(40)), 60_000)
        assert world.store_server.state.revision - before < 40
        assert three.services.partitions.hosted("t0", 0) is not None


def test_a_replica_set_is_not_touched_where_this_broker_does_not_lead() -> None:
    with SimWorld(4) as world:
        members = three_in_sync(world)
        names = {partition.name for partition in members[1].services.partitions.led()}
        assert TopicPartition("t", 0) not in names
        assert members[1].partition("t").leader == BrokerId(1)
