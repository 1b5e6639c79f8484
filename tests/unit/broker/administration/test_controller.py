"""The controller's task: one broker has the role, leaders are replaced, none is fenced for a silence of the store."""

import logging

import pytest
from sim.remote_store import CommitFault
from sim.world import SimWorld

from martlet.base.ids import BrokerId, TopicPartition
from martlet.cluster.keys import live_key
from tests.unit.broker.simulated_members import LEASE_MS, LOG_DIRECTORY, SimMember, in_sync_of, start_members


def controller_of(members: list[SimMember]) -> SimMember:
    """The broker with the role; waits for one that all agree on."""
    world = members[0].world

    def holders() -> set[int | None]:
        roles = [member.services.image.controller for member in members if member.host.is_running]
        return {role.holder.broker if role is not None else None for role in roles}

    world.run_until(lambda: len(holders()) == 1 and None not in holders(), 20_000)
    (number,) = holders()
    return next(member for member in members if member.number == number)


def test_one_broker_is_the_controller_and_another_one_when_that_is_gone() -> None:
    with SimWorld(1) as world:
        members = start_members(world, 3)
        first = controller_of(members)
        first.kill()
        rest = [member for member in members if member is not first]
        world.run_until(lambda: rest[0].services.image.controller is None, 3 * LEASE_MS)
        second = controller_of(rest)
        assert second is not first


def test_a_killed_leader_is_replaced_within_little_more_than_a_lease_though_it_was_the_controller() -> None:
    with SimWorld(2) as world:
        members = start_members(world, 3)
        world.run_for(2 * LEASE_MS)
        controller = controller_of(members)
        others = [member for member in members if member is not controller]
        controller.create_topic("t", controller.number, *(member.number for member in others))
        world.run_until(lambda: len(in_sync_of(others[0], "t")) == 3, 10_000)
        controller.kill()
        killed_ms = world.now_ms
        world.run_until(lambda: others[0].partition("t").leader not in (None, controller.number), 20_000)
        assert world.now_ms - killed_ms < LEASE_MS + 1_000
        assert others[0].partition("t").leader_epoch == 1


def test_a_broker_that_comes_back_is_in_sync_again() -> None:
    with SimWorld(3) as world:
        one, two, three = start_members(world, 3)
        one.create_topic("t", 1, 2, 3)
        world.run_until(lambda: len(in_sync_of(two, "t")) == 3, 10_000)
        one.kill()
        world.run_until(lambda: two.partition("t").leader != 1, 20_000)
        one.start()
        world.run_until(lambda: in_sync_of(two, "t") == {1, 2, 3}, 20_000)
        assert three.partition("t").leader == two.partition("t").leader != 1


def test_no_leader_is_deposed_when_a_silence_of_the_store_has_cost_every_lease() -> None:
    with SimWorld(4) as world:
        members = start_members(world, 3)
        for number in (1, 2, 3):
            members[0].create_topic(f"t{number}", number, 1 + number % 3)
        world.run_until(lambda: all(len(in_sync_of(members[0], f"t{n}")) == 2 for n in (1, 2, 3)), 10_000)
        world.run_for(2 * LEASE_MS)
        world.store_server.stop()
        world.run_for(4 * LEASE_MS)
        assert not any(member.may_act() for member in members)
        world.store_server.start()
        world.run_until(lambda: all(member.may_act() for member in members), 20_000)
        world.run_for(3 * LEASE_MS)
        for number in (1, 2, 3):
            record = members[0].partition(f"t{number}")
            assert (record.leader, record.leader_epoch) == (number, 0), "all of them were there all the time"


def test_a_lost_lease_costs_the_leader_its_place_but_no_message() -> None:
    with SimWorld(5) as world:
        members = start_members(world, 3)
        world.run_for(2 * LEASE_MS)
        controller = controller_of(members)
        victim = next(member for member in members if member is not controller)
        victim.create_topic("t", victim.number, controller.number)
        world.run_until(lambda: len(in_sync_of(controller, "t")) == 2, 10_000)
        world.store_server.state.end_lease_of(live_key(BrokerId(victim.number)))
        world.run_until(lambda: controller.partition("t").leader == controller.number, 5_000)
        world.run_until(victim.may_act, 10_000)
        world.run_until(lambda: in_sync_of(controller, "t") == {victim.number, controller.number}, 20_000)


@pytest.mark.parametrize("fault", list(CommitFault))
def test_an_election_without_an_answer_is_read_back_and_not_made_twice(fault: CommitFault) -> None:
    with SimWorld(f"election {fault.name}") as world:
        members = start_members(world, 3)
        world.run_for(2 * LEASE_MS)
        controller = controller_of(members)
        victim = next(member for member in members if member is not controller)
        victim.create_topic("t", victim.number, controller.number)
        world.run_until(lambda: len(in_sync_of(controller, "t")) == 2, 10_000)
        victim.kill()
        world.run_for(100)
        world.store_server.lose_next_commit(fault)
        world.run_until(lambda: controller.partition("t").leader == controller.number, 30_000)
        world.run_for(20_000)
        assert controller.partition("t").leader_epoch == 1


@pytest.mark.parametrize("fault", [None, CommitFault.AFTER])
def test_an_election_that_may_lose_messages_is_never_silent(
    caplog: pytest.LogCaptureFixture, fault: CommitFault | None
) -> None:
    with SimWorld(6) as world, caplog.at_level(logging.CRITICAL):
        members = start_members(world, 3)
        world.run_for(2 * LEASE_MS)
        controller = controller_of(members)
        one, two = (member for member in members if member is not controller)
        controller.create_topic("t", one.number, two.number, **{"unclean.leader.election.enable": "true"})
        world.run_until(lambda: len(in_sync_of(controller, "t")) == 2, 10_000)
        two.kill()
        world.run_until(lambda: controller.partition("t").isr_ids() == [one.number], 20_000)
        one.kill(power_loss=True)
        two.start()
        if fault is not None:
            world.store_server.lose_next_commit(fault)
        world.run_until(lambda: controller.partition("t").leader == two.number, 30_000)
        world.run_for(100)
        messages = [record.getMessage() for record in caplog.records]
        assert any("about to elect" in message for message in messages)
        assert any("from now on" in message for message in messages) == (fault is None), "by then it was not known"
        assert controller.services.metrics.unclean_elections >= 1


def test_the_last_one_in_sync_does_not_lead_with_an_empty_disk_and_an_operator_chooses_another(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with SimWorld(8) as world, caplog.at_level(logging.CRITICAL):
        members = start_members(world, 3)
        world.run_for(2 * LEASE_MS)
        controller = controller_of(members)
        one, two = (member for member in members if member is not controller)
        controller.create_topic("t", one.number, two.number, **{"min.insync.replicas": "1"})
        world.run_until(lambda: len(in_sync_of(controller, "t")) == 2, 10_000)
        one.append("t")
        world.run_for(5_000)
        two.kill()
        world.run_until(lambda: controller.partition("t").isr_ids() == [one.number], 20_000)
        one.kill()
        two.start()
        one.host.disk.remove_tree(LOG_DIRECTORY.format(one.number))
        one.start()
        world.run_for(30_000)
        assert controller.partition("t").leader is None
        (message,) = (record.getMessage() for record in caplog.records if "get no leader" in record.getMessage())
        assert "t-0" in message
        where = TopicPartition("t", 0)
        asked = controller.call(lambda services: services.partition_admin.elect_leaders([where], unclean=True))
        assert asked == {where: None}
        assert controller.partition("t").leader == two.number, "the first replica's disk is empty"
        world.run_until(lambda: in_sync_of(controller, "t") == {one.number, two.number}, 20_000)
        copy = one.services.logs.get(where)
        assert copy is not None
        assert copy.end_offset == 1, "what was acknowledged is still there"


def test_leaders_go_back_to_their_first_replica_after_a_while() -> None:
    with SimWorld(7) as world:
        one, two, _ = start_members(world, 3, leader_balance_interval_ms=5_000)
        one.create_topic("t", 1, 2, 3)
        world.run_until(lambda: len(in_sync_of(two, "t")) == 3, 10_000)
        one.kill()
        world.run_until(lambda: two.partition("t").leader not in (None, 1), 20_000)
        one.start()
        world.run_until(lambda: two.partition("t").leader == 1, 40_000)
        assert in_sync_of(two, "t") == {1, 2, 3}
