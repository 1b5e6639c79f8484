"""Whole brokers whose disks fill up: who leads, who copies, what a start can do, and how all is well again."""

import json

import pytest
from sim.world import SimWorld

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import BrokerId
from martlet.broker.membership.identity_file import IDENTITY_FILE
from tests.unit.broker.simulated_members import LEASE_MS, LOG_DIRECTORY, SimMember, in_sync_of, start_members

MEBIBYTE = 1 << 20
RESERVE = 4 * MEBIBYTE


def members_with_a_reserve(world: SimWorld, count: int) -> list[SimMember]:
    return start_members(world, count, disk_reserve_bytes=RESERVE)


def leave_free(member: SimMember, free_bytes: int | None) -> None:
    """Others take all of the member's disk but this; None: they leave it."""
    disk = member.host.disk
    disk.capacity_bytes = None if free_bytes is None else disk.used_bytes() + free_bytes


def is_shown_full(seen_by: SimMember, number: int) -> bool:
    live = seen_by.services.image.live(BrokerId(number))
    return live is not None and live.full


def append_code(member: SimMember) -> ErrorCode:
    try:
        member.append("t")
    except ApiError as error:
        return error.code
    return ErrorCode.NONE


def end_offset(member: SimMember) -> int:
    partition = member.services.partitions.hosted("t", 0)
    assert partition is not None
    return partition.log.end_offset


def three_in_sync(world: SimWorld) -> list[SimMember]:
    members = members_with_a_reserve(world, 3)
    members[0].create_topic("t", 1, 2, 3, **{"min.insync.replicas": "2"})
    world.run_until(lambda: all(len(in_sync_of(member, "t")) == 3 for member in members), 10_000)
    return members


# --- who leads and who copies


def test_a_leader_whose_disk_is_full_hands_over_and_gets_its_place_back_when_there_is_space() -> None:
    with SimWorld("a full leader") as world:
        one, two, three = three_in_sync(world)
        one.append("t")
        leave_free(one, RESERVE - 1)
        world.run_until(lambda: all(each.partition("t").leader == 2 for each in (one, two, three)), 3_000)
        assert in_sync_of(two, "t") == {1, 2, 3}, "it has everything so far"
        two.append("t")
        world.run_until(lambda: in_sync_of(two, "t") == {2, 3}, 2_000)
        assert end_offset(one) == 1
        leave_free(one, None)
        world.run_until(lambda: in_sync_of(two, "t") == {1, 2, 3}, 20_000)
        assert end_offset(one) == 2
        assert not is_shown_full(two, 1)
        two.append("t")


def test_a_leader_goes_on_when_no_other_has_space_and_hands_over_to_the_first_that_has() -> None:
    with SimWorld("all are full") as world:
        members = three_in_sync(world)
        for member in members:
            leave_free(member, 0)
        world.run_until(lambda: all(is_shown_full(members[0], number) for number in (1, 2, 3)), 5_000)
        world.run_for(5 * LEASE_MS)
        assert members[0].partition("t").leader == 1
        assert append_code(members[0]) is ErrorCode.KAFKA_STORAGE_ERROR
        leave_free(members[2], None)
        world.run_until(lambda: append_code(members[2]) is ErrorCode.NONE, 5_000)


def test_a_follower_without_space_leaves_the_reserve_alone_is_dropped_at_once_and_catches_up() -> None:
    with SimWorld("a full follower") as world:
        one, _, three = three_in_sync(world)
        leave_free(three, RESERVE + 500)
        world.run_until(lambda: not three.services.partitions.space.is_full, 1)
        appended = 0
        while three.number in in_sync_of(one, "t"):
            one.append("t")
            appended += 1
            world.run_for(100)
            assert appended < 100
        assert three.host.disk.free_bytes("/data") >= RESERVE - 2_000, "what belongs to no message is small"
        assert end_offset(three) < appended
        free_bytes = three.host.disk.free_bytes("/data")
        world.run_for(60_000)
        assert three.host.disk.free_bytes("/data") >= free_bytes - 4_000
        assert in_sync_of(one, "t") == {1, 2}
        leave_free(three, None)
        world.run_until(lambda: in_sync_of(one, "t") == {1, 2, 3}, 20_000)
        assert end_offset(three) == appended


def test_a_replica_that_found_no_space_for_its_log_makes_it_when_there_is_some() -> None:
    with SimWorld("no space for a log") as world:
        one, two = members_with_a_reserve(world, 2)
        leave_free(two, 0)
        one.create_topic("t", 1, 2)
        world.run_until(lambda: in_sync_of(one, "t") == {1}, 30_000)
        world.run_for(30_000)
        assert two.services.partitions.hosted("t", 0) is None
        leave_free(two, None)
        world.run_until(lambda: in_sync_of(one, "t") == {1, 2}, 30_000)


# --- starting


def killed_with_a_message(world: SimWorld) -> SimMember:
    (member,) = members_with_a_reserve(world, 1)
    member.create_topic("t", 1)
    member.append("t")
    member.kill()
    return member


def identity_of(member: SimMember) -> int:
    content = member.host.disk.read_file(f"{LOG_DIRECTORY.format(member.number)}/{IDENTITY_FILE}")
    assert content is not None
    return int(json.loads(content)["incarnation"])


def take_what_is_kept_for_the_identity(member: SimMember) -> None:
    member.host.disk.remove(f"{LOG_DIRECTORY.format(member.number)}/{IDENTITY_FILE}.tmp")


@pytest.mark.parametrize("ending", ["kill", "stop"])
def test_a_broker_starts_on_a_full_disk_and_proves_at_its_next_start_what_it_held(ending: str) -> None:
    with SimWorld(f"start on a full disk after {ending}") as world:
        member = killed_with_a_message(world)
        first = member.services.me.incarnation
        for _ in range(3):
            leave_free(member, 0)
            member.start()
            assert append_code(member) is ErrorCode.KAFKA_STORAGE_ERROR
            assert end_offset(member) == 1
            assert member.record.vouches_for(first)
            assert identity_of(member) == member.record.incarnation
            getattr(member, ending)()


def test_a_start_without_any_space_takes_messages_and_writes_down_who_it_is_once_there_is_some() -> None:
    with SimWorld("no space for the identity") as world:
        member = killed_with_a_message(world)
        first = member.services.me.incarnation
        take_what_is_kept_for_the_identity(member)
        leave_free(member, 0)
        member.start()
        assert member.record.vouches_for(first)
        assert identity_of(member) == first
        leave_free(member, None)
        world.run_until(lambda: append_code(member) is ErrorCode.NONE, 5_000)
        second = member.record.incarnation
        assert identity_of(member) == second
        member.kill()
        member.start()
        assert member.record.vouches_for(first)
        assert member.record.vouches_for(second)
        assert end_offset(member) == 2


def test_a_start_that_could_not_write_down_who_it_is_is_not_vouched_for_by_the_next_one() -> None:
    with SimWorld("no proof without space") as world:
        member = killed_with_a_message(world)
        first = member.services.me.incarnation
        take_what_is_kept_for_the_identity(member)
        leave_free(member, 0)
        member.start()
        second = member.record.incarnation
        member.kill()
        leave_free(member, None)
        member.start()
        assert [member.record.vouches_for(one) for one in (first, second)] == [False, False]
        assert end_offset(member) == 1, "a single replica goes on with what it has"


def test_j3_a_log_is_not_put_aside_while_there_is_no_space_to_write_that_down() -> None:
    with SimWorld("no space to give up a log") as world:
        one, two = members_with_a_reserve(world, 2)
        one.create_topic("t", 1, 2)
        first = one.record.incarnation
        one.kill()
        world.run_until(lambda: two.partition("t").leader == 2, 30_000)
        take_what_is_kept_for_the_identity(one)
        one.host.disk.fail_next_write()
        one.host.disk.fail_next_write()
        leave_free(one, 0)
        one.start()
        second = one.record.incarnation
        world.run_for(LEASE_MS)
        assert len(one.services.logs.failures) == 1, "its files are where they were"
        leave_free(one, None)
        world.run_until(lambda: in_sync_of(two, "t") == {1, 2}, 30_000)
        assert one.services.logs.failures == {}, "it was put aside and copied from the leader"
        one.kill()
        one.start()
        assert [one.record.vouches_for(first), one.record.vouches_for(second)] == [False, True]
