"""A broker process joins its cluster, stays a member through what happens to its lease and its store, and leaves."""

import json
from functools import partial

import pytest
from sim.remote_store import STORE_NAME, CommitFault
from sim.world import SimWorld

from martlet.base.errors import MembershipRefused, StorageFailure
from martlet.base.ids import BrokerId, Incarnation, Member, TopicPartition
from martlet.broker.membership import membership
from martlet.broker.membership.broker_registration import elect_own_partitions
from martlet.broker.membership.identity_file import IDENTITY_FILE
from martlet.broker.membership.metadata_changes import MetadataChanges
from martlet.cluster.keys import broker_key, live_key
from martlet.cluster.records import BrokerRecord, decode_record
from tests.unit.broker.simulated_members import LEASE_MS, LOG_DIRECTORY, SimMember, in_sync_of, start_members


def only_member(world: SimWorld) -> SimMember:
    member = SimMember(world, 1)
    member.start()
    return member


# --- whose directory it is


def test_a_directory_says_who_used_it_last() -> None:
    with SimWorld(1) as world:
        member = only_member(world)
        content = member.host.disk.read_file(f"{LOG_DIRECTORY.format(1)}/{IDENTITY_FILE}")
        assert content is not None
        identity = json.loads(content)
        assert identity["cluster_id"] == member.services.cluster_id != ""
        assert (identity["broker_id"], identity["incarnation"]) == (1, member.record.incarnation)


def test_a_broker_with_the_directory_of_another_cluster_refuses_and_touches_nothing() -> None:
    with SimWorld(2) as world:
        member = only_member(world)
        member.stop()
        world.store_server.state.entries.clear()  # an operator points the broker at a new store
        before = member.host.disk.list_directory(LOG_DIRECTORY.format(1))
        with pytest.raises(MembershipRefused, match=r"holds data of cluster .*the metadata store is empty"):
            world.run_process(member.host, member._main)
        assert member.host.disk.list_directory(LOG_DIRECTORY.format(1)) == before
        assert world.store_server.state.entries == {}


def test_a_broker_with_the_directory_of_another_broker_refuses() -> None:
    with SimWorld(3) as world:
        member = only_member(world)
        member.stop()
        member.host.disk.rename(LOG_DIRECTORY.format(1), LOG_DIRECTORY.format(2))
        other = SimMember(world, 2, member.host)
        with pytest.raises(MembershipRefused, match="data of broker 1, not of broker 2"):
            world.run_process(other.host, other._main)


def test_a_damaged_identity_stops_the_start_and_stays_as_it_is() -> None:
    with SimWorld(4) as world:
        member = only_member(world)
        member.stop()
        path = f"{LOG_DIRECTORY.format(1)}/{IDENTITY_FILE}"
        member.host.disk.replace_file(path, b'{"cluster_id"')
        with pytest.raises(StorageFailure, match=r"martlet\.identity"):
            world.run_process(member.host, member._main)
        assert member.host.disk.read_file(path) == b'{"cluster_id"'


# --- what a restart proves


def test_a_killed_broker_is_back_at_once_and_vouches_for_what_it_held() -> None:
    with SimWorld(5) as world:
        member = only_member(world)
        first = member.record.incarnation
        member.kill()
        began_ms = world.now_ms
        member.start()
        assert world.now_ms - began_ms < 500, "it need not wait for its own lease to run out"
        assert member.record.incarnation > first
        assert member.record.vouches_for(first), "the machine was not restarted, so what was written is there"


def test_a_copy_of_a_directory_in_use_proves_nothing() -> None:
    with SimWorld(31) as world:
        member = only_member(world)
        first = member.record.incarnation
        member.kill()
        member.host.disk.place = "a copy, perhaps an old one"
        member.start()
        assert not member.record.vouches_for(first)
        second = member.record.incarnation
        member.kill()
        member.start()
        assert member.record.vouches_for(second), "where it is now is its place"


def test_a_copy_of_a_directory_that_was_closed_cleanly_is_as_good() -> None:
    with SimWorld(32) as world:
        member = only_member(world)
        first = member.record.incarnation
        member.stop()
        member.host.disk.place = "another disk"
        member.start()
        assert member.record.vouches_for(first)


@pytest.mark.parametrize("fault", list(CommitFault))
def test_a_registration_whose_answer_is_lost_costs_no_proof(fault: CommitFault) -> None:
    with SimWorld(f"proof {fault.name}") as world:
        member = only_member(world)
        first = member.record.incarnation
        member.kill()
        world.store_server.lose_next_commit(fault)
        member.start()
        assert member.record.vouches_for(first)
        registrations = member.record.incarnation - first
        assert registrations == 1, "it is registered once, and knows its registration again"


def test_a_start_that_got_no_further_than_its_registration_costs_no_proof() -> None:
    with SimWorld(23) as world:
        member = only_member(world)
        first = member.record.incarnation
        for _ in range(3):
            before = stored_incarnation(world)
            member.kill()
            member.begin()
            world.run_until(partial(is_registered_after, world, before), 10_000)
        member.kill()
        member.begin()
        world.run_for(1)  # this one is not even registered
        member.kill()
        began_ms = world.now_ms
        member.start()
        assert world.now_ms - began_ms < 500
        assert member.record.vouches_for(first)


def is_registered_after(world: SimWorld, before: int) -> bool:
    return stored_incarnation(world) > before


def stored_incarnation(world: SimWorld) -> int:
    return decode_record(BrokerRecord, world.store_server.state.entries[broker_key(BrokerId(1))]).incarnation


def test_a_broker_vouches_for_nothing_after_a_power_loss() -> None:
    with SimWorld(6) as world:
        member = only_member(world)
        first = member.record.incarnation
        member.kill(power_loss=True)
        member.start()
        assert not member.record.vouches_for(first)
        assert member.record.has_logs_of(first), "it is the same directory all the same"


def test_a_clean_stop_is_proof_enough_whatever_happens_to_the_machine_afterwards() -> None:
    with SimWorld(7) as world:
        member = only_member(world)
        first = member.record.incarnation
        member.stop()
        assert member.stopped_cleanly
        member.kill(power_loss=True)
        member.start()
        assert member.record.vouches_for(first)


def test_a_broker_with_a_new_disk_vouches_for_nothing() -> None:
    with SimWorld(8) as world:
        member = only_member(world)
        first = member.record.incarnation
        member.stop()
        member.host.disk.remove_tree(LOG_DIRECTORY.format(1))
        member.start()
        assert not member.record.vouches_for(first)
        assert not member.record.has_logs_of(first)


def test_a_broker_whose_log_is_gone_vouches_for_nothing() -> None:
    with SimWorld(9) as world:
        member = only_member(world)
        member.create_topic("t", 1)
        member.call(_append)
        world.run_for(10_000)  # a checkpoint names the log
        first = member.record.incarnation
        member.stop()
        member.host.disk.remove_tree(f"{LOG_DIRECTORY.format(1)}/t-0")
        member.start()
        assert not member.record.vouches_for(first)
        assert not member.record.has_logs_of(first)


async def _append(services: object) -> None:
    services.partitions.get("t", 0)  # type: ignore[attr-defined]


def killed_with_a_message(world: SimWorld) -> tuple[SimMember, Incarnation]:
    """A broker with one log, and which start of it was killed."""
    member = only_member(world)
    member.create_topic("orders", 1)
    member.append("orders")
    first = member.record.incarnation
    member.kill()
    return member, first


def fail_to_open_its_log(member: SimMember) -> None:
    """At its next start the device fails when its one log is opened, and when that is tried again."""
    member.host.disk.fail_next_write()
    member.host.disk.fail_next_write()


def test_a_device_that_fails_once_when_a_log_is_opened_costs_nothing() -> None:
    with SimWorld(41) as world:
        member, first = killed_with_a_message(world)
        member.host.disk.fail_next_write()
        member.start()
        assert member.services.logs.failures == {}
        assert member.record.vouches_for(first)


def test_logs_that_cannot_be_opened_are_vouched_for_again_once_they_can() -> None:
    with SimWorld(42) as world:
        member, first = killed_with_a_message(world)
        fail_to_open_its_log(member)
        member.start()
        second = member.record
        assert len(member.services.logs.failures) == 1
        assert [second.vouches_for(first), second.has_logs_of(first)] == [False, False]
        member.kill()
        member.start()
        assert member.services.logs.failures == {}
        assert member.record.vouches_for(first)


def test_the_last_holder_of_a_partition_leads_it_again_once_its_log_can_be_opened() -> None:
    with SimWorld(43) as world:
        one, two = start_members(world, 2)
        one.create_topic("orders", 1, 2)
        two.kill()
        world.run_until(lambda: one.partition("orders").isr_ids() == [1], 30_000)
        one.append("orders")
        one.kill()
        fail_to_open_its_log(one)
        one.start()
        two.start()
        world.run_for(5 * LEASE_MS)
        assert two.partition("orders").leader is None
        one.kill()
        one.start()
        world.run_until(lambda: two.partition("orders").leader == 1, 30_000)
        log = one.services.logs.get(TopicPartition("orders", 0))
        assert log is not None
        assert log.end_offset == 1


def test_a_log_that_was_put_aside_because_it_could_not_be_opened_is_not_vouched_for() -> None:
    with SimWorld(44) as world:
        one, two = start_members(world, 2)
        one.create_topic("orders", 1, 2)
        first = one.record.incarnation
        one.kill()
        world.run_until(lambda: two.partition("orders").leader == 2, 30_000)
        fail_to_open_its_log(one)
        one.start()
        second = one.record.incarnation
        world.run_until(lambda: in_sync_of(two, "orders") == {1, 2}, 30_000)
        assert one.services.logs.failures == {}, "it was put aside and copied again"
        one.kill()
        one.start()
        assert [one.record.vouches_for(first), one.record.vouches_for(second)] == [False, True]
        assert not one.record.has_logs_of(first)


# --- two processes of one broker


def test_a_second_process_of_a_broker_is_refused_and_learns_where_the_first_one_is() -> None:
    with SimWorld(10) as world:
        member = only_member(world)
        second = SimMember(world, 1, world.add_host("elsewhere"))
        with pytest.raises(MembershipRefused, match="running already at broker1:9092"):
            world.run_process(second.host, second._main, 60_000)
        assert member.is_serving


def test_a_second_process_takes_over_when_the_first_one_dies_meanwhile() -> None:
    with SimWorld(11) as world:
        member = only_member(world)
        second = SimMember(world, 1, world.add_host("elsewhere"))
        world.at_ms(world.now_ms + 1_000, member.kill)
        second.start()
        assert not second.record.vouches_for(member.record.incarnation), "it has not what the first one had"


def test_a_store_that_was_away_gives_the_process_before_its_time_again() -> None:
    with SimWorld(17) as world:
        member = only_member(world)
        member.kill()
        member.host.disk.remove_tree(LOG_DIRECTORY.format(1))
        second = SimMember(world, 1, member.host)

        def come_back() -> None:
            world.store_server.state.restart_leases(world.clock.now_ms())
            world.store_server.start()

        world.at_ms(world.now_ms + 1_000, world.store_server.stop)
        world.at_ms(world.now_ms + 4_000, come_back)
        second.start()
        assert second.is_serving


def test_a_start_outlasts_a_store_that_goes_away_in_the_middle_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    take_over = elect_own_partitions
    with SimWorld(18) as world:
        member = only_member(world)
        member.create_topic("t", 1)
        epoch = member.partition("t").leader_epoch
        member.kill()
        outages = iter([8_000])

        async def without_the_store(changes: MetadataChanges, me: Member) -> int:
            for outage_ms in outages:
                world.store_server.stop()
                world.at_ms(world.now_ms + outage_ms, world.store_server.start)
            return await take_over(changes, me)

        monkeypatch.setattr(membership, "elect_own_partitions", without_the_store)
        member.start()
        assert member.partition("t").leader_epoch > epoch


def test_a_process_that_finds_its_broker_registered_again_ends() -> None:
    with SimWorld(12) as world:
        member = only_member(world)
        world.network.cut(member.host.name, STORE_NAME)
        second = SimMember(world, 1, world.add_host("elsewhere"))
        second.start()
        assert not member.may_act()
        world.network.heal(member.host.name, STORE_NAME)
        world.run_until(lambda: not member.host.is_running, 30_000)
        assert isinstance(member.host.failures[-1], MembershipRefused)
        assert "registered again by another process at elsewhere:9092" in str(member.host.failures[-1])
        assert second.is_serving


# --- the lease


def test_a_short_silence_of_the_store_changes_nothing() -> None:
    with SimWorld(13) as world:
        member = only_member(world)
        world.run_for(5_000)
        world.store_server.stop()
        for _ in range(15):
            world.run_for(100)
            assert member.may_act()
        world.store_server.start()
        world.run_for(5_000)
        assert member.may_act()


def test_a_broker_cut_off_from_the_store_acts_no_more_and_goes_on_by_itself_when_it_is_back() -> None:
    with SimWorld(14) as world:
        member = only_member(world)
        world.run_for(5_000)
        incarnation = member.record.incarnation
        world.store_server.stop()
        world.run_for(LEASE_MS)
        assert not member.may_act()
        assert member.app is not None
        assert "lost touch" in member.app.readiness()[1]
        world.run_for(60_000)
        assert member.host.is_running, "an outage stops no broker"
        world.store_server.start()
        world.run_until(member.may_act, 10_000)
        assert member.record.incarnation == incarnation
        live = member.services.image.live(BrokerId(1))
        assert live is not None
        assert live.incarnation == incarnation


def test_it_stops_acting_before_the_store_can_have_given_its_lease_away() -> None:
    with SimWorld(15) as world:
        member = only_member(world)
        world.run_for(7_000)
        world.network.cut(member.host.name, STORE_NAME)
        world.run_until(lambda: live_key(BrokerId(1)) not in world.store_server.state.entries, 20_000)
        assert not member.may_act()


def test_a_lease_that_ends_without_its_fault_is_replaced_by_another() -> None:
    with SimWorld(16) as world:
        member = only_member(world)
        incarnation = member.record.incarnation
        world.run_for(2_000)
        world.store_server.state.end_lease_of(live_key(BrokerId(1)))
        world.run_until(lambda: not member.may_act(), 2_000)
        world.run_until(member.may_act, 5_000)
        assert member.record.incarnation == incarnation
        assert live_key(BrokerId(1)) in world.store_server.state.entries


def test_a_stopped_process_does_not_act_on_what_it_knew_when_it_goes_on() -> None:
    with SimWorld(17) as world:
        member = only_member(world)
        world.run_for(2_000)
        member.host.pause(20_000)
        world.run_for(19_999)
        assert not member.may_act()
        world.run_until(member.may_act, 10_000)
        assert member.host.is_running


@pytest.mark.parametrize("fault", list(CommitFault))
def test_a_registration_without_an_answer_ends_well(fault: CommitFault) -> None:
    with SimWorld(f"registration {fault.name}") as world:
        world.store_server.lose_next_commit(fault)
        member = SimMember(world, 1)
        member.start()
        world.run_for(10_000)
        assert member.is_serving
        assert member.record.incarnation == member.services.me.incarnation


def test_a_disk_that_does_not_answer_costs_the_lease() -> None:
    with SimWorld(18) as world:
        member, other = start_members(world, 2)
        world.run_for(2_000)
        member.host.stall_disk(40_000)
        world.run_until(lambda: not member.may_act(), 25_000)
        assert other.may_act()
        world.run_until(member.may_act, 50_000)


def test_a_broker_that_is_alone_keeps_its_lease_though_its_disk_does_not_answer() -> None:
    with SimWorld(22) as world:
        member = only_member(world)
        world.run_for(2_000)
        member.host.stall_disk(40_000)
        world.run_for(30_000)
        assert member.may_act()


# --- leaving


def test_leaderships_are_with_others_before_a_broker_stops() -> None:
    with SimWorld(19) as world:
        one, two, three = start_members(world, 3)
        one.create_topic("t", 1, 2, 3)
        world.run_until(lambda: len(two.partition("t").isr) == 3, 10_000)
        one.request.send()
        world.run_until(lambda: two.partition("t").leader != 1, 5_000)
        assert one.host.is_running, "it waits for that"
        world.run_for(200)
        assert one.host.is_running, "clients hear from it who leads now"
        world.run_until(lambda: not one.host.is_running, 10_000)
        assert one.stopped_cleanly
        assert one.host.failures == []
        world.run_until(lambda: BrokerId(1) not in two.partition("t").isr_ids(), 1_000)
        assert three.is_serving


def test_a_broker_that_no_other_can_take_over_from_stops_without_waiting() -> None:
    with SimWorld(20) as world:
        member = only_member(world)
        member.create_topic("t", 1)
        began_ms = world.now_ms
        member.stop()
        assert world.now_ms - began_ms < 500


def test_a_stop_takes_its_time_at_most_when_no_controller_hands_over() -> None:
    with SimWorld(21) as world:
        one, _two, _three = start_members(world, 3)
        one.create_topic("t", 1, 2, 3)
        world.run_until(lambda: len(one.partition("t").isr) == 3, 10_000)
        world.store_server.stop()
        began_ms = world.now_ms
        one.stop()
        assert world.now_ms - began_ms < 15_000
