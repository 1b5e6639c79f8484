"""Damaged copies in whole brokers: their processes go on, another copy takes over, and a sound one is made again."""

from pathlib import PurePosixPath

import pytest
from sim.remote_store import STORE_NAME, CommitFault
from sim.world import SimWorld

from martlet.base.errors import ErrorCode, LogDamaged, StorageFailure
from martlet.base.ids import TopicPartition
from martlet.broker.partitions.partition import Partition
from tests.unit.broker.simulated_members import LOG_DIRECTORY, SimMember, in_sync_of, start_members

_T0 = TopicPartition("t", 0)
_COUNT = 60


def three_with_messages(world: SimWorld) -> list[SimMember]:
    members = start_members(world, 3)
    members[0].create_topic("t", 1, 2, 3, **{"min.insync.replicas": "2", "segment.bytes": "2000"})
    world.run_until(lambda: are_whole(members), 10_000)
    for _ in range(_COUNT):
        members[0].append("t")
    world.run_until(lambda: are_alike(members), 10_000)
    return members


def are_whole(members: list[SimMember]) -> bool:
    return all(in_sync_of(member, "t") == {1, 2, 3} for member in members)


def hosted(member: SimMember) -> Partition:
    partition = member.services.partitions.hosted("t", 0)
    assert partition is not None
    return partition


def directory(member: SimMember) -> str:
    return f"{LOG_DIRECTORY.format(member.number)}/t-0"


def messages(member: SimMember) -> bytes:
    """All that is in its files."""
    files = member.host.disk.files(directory(member))
    return b"".join(bytes(files[name].content) for name in sorted(files) if name.endswith(".log"))


def are_alike(members: list[SimMember]) -> bool:
    contents = [messages(member) for member in members]
    return contents[0] == contents[1] == contents[2] and hosted(members[0]).log.end_offset >= _COUNT


def kept_aside(member: SimMember) -> list[str]:
    parent = str(PurePosixPath(directory(member)).parent)
    return [entry.name for entry in member.host.disk.list_directory(parent) if entry.name.endswith("-stray")]


def damage_at_rest(member: SimMember, segment: int) -> None:
    """While it is down: a bit changes in the last byte of the first batch of a segment."""
    member.stop()
    files = sorted(name for name in member.host.disk.files(directory(member)) if name.endswith(".log"))
    last_byte = len(messages(member)) // _COUNT - 1
    member.host.disk.flip_bit(f"{directory(member)}/{files[segment]}", last_byte * 8)
    member.start()


def read_failed(member: SimMember, failure: StorageFailure | None = None) -> ErrorCode:
    """As when a reader has come to the damaged place."""
    failure = failure or LogDamaged("t-0: damaged at byte 7")

    async def note(services: object) -> ErrorCode:
        return member.services.partitions.damage.read_failed(hosted(member), failure)

    code: ErrorCode = member.call(note)
    return code


def starts(members: list[SimMember]) -> list[int]:
    return [member.host.starts for member in members]


@pytest.mark.parametrize("segment", [pytest.param(0, id="found by a read"), pytest.param(-1, id="found at the start")])
def test_a_follower_with_a_wrong_byte_copies_again_and_everybody_goes_on(segment: int) -> None:
    with SimWorld(f"follower {segment}") as world:
        members = three_with_messages(world)
        two = members[1]
        damage_at_rest(two, segment)
        before = starts(members)
        world.run_until(lambda: bool(kept_aside(two)), 10_000)
        world.run_until(lambda: are_whole(members) and are_alike(members), 30_000)
        assert starts(members) == before
        assert (members[0].partition("t").leader, members[0].partition("t").leader_epoch) == (1, 1)
        assert not two.services.partitions.damage.names


def test_a_leader_hands_over_and_copies_again() -> None:
    with SimWorld("leader") as world:
        members = three_with_messages(world)
        one = members[0]
        before, damaged = starts(members), hosted(one)
        assert read_failed(one) is ErrorCode.KAFKA_STORAGE_ERROR
        world.run_until(lambda: bool(kept_aside(one)), 10_000)
        assert damaged.closed_with is not None
        assert one.partition("t").leader == 2
        world.run_until(lambda: are_whole(members) and are_alike(members), 30_000)
        assert starts(members) == before
        assert hosted(one) is not damaged


@pytest.mark.parametrize("fault", list(CommitFault))
def test_an_answer_of_the_store_that_never_comes_changes_nothing(fault: CommitFault) -> None:
    with SimWorld(f"resignation {fault.name}") as world:
        members = three_with_messages(world)
        world.store_server.lose_next_commit(fault)
        read_failed(members[0])
        world.run_until(lambda: bool(kept_aside(members[0])), 30_000)
        world.run_until(lambda: are_whole(members) and are_alike(members), 60_000)
        assert len(kept_aside(members[0])) == 1


def test_while_the_store_is_away_the_copy_stays() -> None:
    with SimWorld("store away") as world:
        members = three_with_messages(world)
        world.network.cut("broker3", STORE_NAME)
        read_failed(members[2])
        world.run_for(2_000)
        assert not kept_aside(members[2])
        world.network.heal_all()
        world.run_until(lambda: bool(kept_aside(members[2])), 30_000)
        world.run_until(lambda: are_whole(members) and are_alike(members), 60_000)


def test_the_only_complete_copy_stays_in_use_until_another_one_is_complete() -> None:
    with SimWorld("only one") as world:
        members = three_with_messages(world)
        one, two, three = members
        two.kill()
        three.kill()
        world.run_until(lambda: in_sync_of(one, "t") == {1}, 30_000)
        damaged = hosted(one)
        assert read_failed(one) is ErrorCode.CORRUPT_MESSAGE
        assert read_failed(one, StorageFailure("t-0: Permission denied")) is ErrorCode.KAFKA_STORAGE_ERROR
        world.run_for(5_000)
        assert hosted(one) is damaged
        assert damaged.leader is not None
        two.start()
        three.start()
        world.run_until(lambda: bool(kept_aside(one)), 30_000)
        world.run_until(lambda: are_whole(members) and are_alike(members), 60_000)


def test_two_copies_are_given_up_at_once() -> None:
    with SimWorld("two") as world:
        members = three_with_messages(world)
        for member in members[1:]:
            read_failed(member)
        world.run_until(lambda: all(kept_aside(member) for member in members[1:]), 30_000)
        world.run_until(lambda: are_whole(members) and are_alike(members), 60_000)
        assert members[0].partition("t").leader == 1
