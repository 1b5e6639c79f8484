"""`martlet group` against a fake broker: what is printed, what is changed, and how it ends."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from sim.clock import SimClock

from martlet.base.errors import ErrorCode
from martlet.base.ids import TopicPartition
from martlet.wire import message_codec
from martlet.wire.api_keys import ApiKey
from martlet.wire.batch import build_batch
from martlet.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from martlet.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from tests.unit.cli.command_line import Ran, broker_in_thread, lines
from tests.unit.cli.command_line import martlet as run_martlet
from tests.unit.client.fake_broker import FakeBroker
from tests.unit.client.fake_groups import FakeGroup, FakeGroups, FakeMember

T0, T1, AUDIT = TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("audit", 0)


@pytest.fixture
def broker() -> FakeBroker:
    made = FakeBroker()
    made.cluster.add_topic("orders", [1, 1])
    made.cluster.add_topic("audit", [1])
    return made


@pytest.fixture
def groups(broker: FakeBroker) -> FakeGroups:
    return FakeGroups(broker)


@pytest.fixture
def bootstrap(broker: FakeBroker) -> Iterator[str]:
    with broker_in_thread(broker) as address:
        yield address


@pytest.fixture
def martlet(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("martlet.cli.group_lag.SystemClock", SimClock)

    def run(*arguments: str, stdin: bytes = b"") -> Ran:
        return run_martlet("group", *arguments, stdin=stdin, environment={"MARTLET_BOOTSTRAP": bootstrap})

    return run


def publish(broker: FakeBroker, partition: TopicPartition, count: int, *, age_ms: int = 90_500) -> None:
    """So many messages of one age."""
    stamp = SimClock().now_ms() - age_ms
    broker.append(partition, build_batch([(stamp, None, b"v", ())] * count))


def busy(client: str = "reader", **assigned: tuple[int, ...]) -> FakeGroup:
    return FakeGroup("consumer", "Stable", [FakeMember("m-1", client, assigned)])


def test_groups_are_listed(groups: FakeGroups, martlet: Any) -> None:
    groups.groups = {"b": busy(orders=(0,)), "a": FakeGroup()}
    assert martlet("list") == (
        0,
        lines(
            "GROUP  TYPE      STATE   COORDINATOR",
            "a      classic   Empty             1",
            "b      consumer  Stable            1",
        ),
        "",
    )
    assert json.loads(martlet("list", "--json").stdout)[0] == {
        "group": "a",
        "type": "classic",
        "state": "Empty",
        "protocol_type": "consumer",
        "coordinator": 1,
    }


def test_groups_are_listed_by_state_and_type(groups: FakeGroups, martlet: Any) -> None:
    groups.groups = {"b": busy(orders=(0,)), "a": FakeGroup()}
    assert [row["group"] for row in json.loads(martlet("list", "--state", "stable", "--json").stdout)] == ["b"]
    assert [row["group"] for row in json.loads(martlet("list", "--type", "classic", "--json").stdout)] == ["a"]
    none = martlet("list", "--state", "Dead")
    assert none == (0, "", "no group is like that; a group appears when its first consumer does\n")
    assert martlet("list", "--state", "asleep").exit_code == 2


def test_no_groups_are_said_to_be_none(groups: FakeGroups, martlet: Any) -> None:
    assert martlet("list") == (0, "", "there are no groups; a group appears when its first consumer does\n")
    assert martlet("list", "--json").stdout == "[]\n"
    assert martlet("lag", "--all") == (0, "", "there are no groups; a group appears when its first consumer does\n")


def test_a_consumer_group_is_described(groups: FakeGroups, martlet: Any) -> None:
    groups.groups["g"] = busy(orders=(1, 0), audit=(0,))
    assert martlet("describe", "g") == (
        0,
        lines(
            "group             g",
            "type              consumer",
            "state             Stable",
            "assignor          uniform",
            "coordinator       1",
            "members           1",
            "epoch             7",
            "assignment epoch  6",
            "",
            "MEMBER  CLIENT  HOST      EPOCH  PARTITIONS",
            "m-1     reader  10.0.0.1      5  audit:0 orders:0,1",
        ),
        "",
    )
    described = json.loads(martlet("describe", "g", "--json").stdout)
    assert (described["epoch"], described["assignment_epoch"]) == (7, 6)
    [member] = described["members"]
    assert member["assigned"][0] == {"topic": "audit", "partition": 0}
    assert member["target"] == member["assigned"]


def test_a_classic_group_is_described(groups: FakeGroups, martlet: Any) -> None:
    static = FakeMember("m-1", "reader", {"orders": (1,)}, instance_id="one")
    groups.groups["g"] = FakeGroup("classic", "Stable", [static, FakeMember("m-2", "idle")])
    ran = martlet("describe", "g")
    assert ran.stdout.splitlines()[-3:] == [
        "MEMBER  CLIENT  HOST      INSTANCE  PARTITIONS",
        "m-1     reader  10.0.0.1  one       orders:1",
        "m-2     idle    10.0.0.1  -         -",
    ]
    assert "epoch" not in ran.stdout
    assert json.loads(martlet("describe", "g", "--json").stdout)["members"][0]["target"] is None


@pytest.mark.parametrize("command", [["describe", "g"], ["lag", "g"], ["delete", "g", "--yes"]])
def test_a_group_that_does_not_exist_is_not_found(groups: FakeGroups, martlet: Any, command: list[str]) -> None:
    assert martlet(*command) == (3, "", "error: there is no group 'g'\n hint: `martlet group list` shows the groups\n")


def test_lag_is_shown_by_partition(broker: FakeBroker, groups: FakeGroups, martlet: Any) -> None:
    publish(broker, T0, 5)
    publish(broker, AUDIT, 2)
    groups.groups["g"] = busy(orders=(0, 1))
    groups.groups["g"].offsets = {T0: 2, AUDIT: 2, TopicPartition("gone", 0): 7}
    assert martlet("lag", "g") == (
        0,
        lines(
            "TOPIC   PARTITION  COMMITTED  FIRST  END  LAG  BEHIND    READER",
            "audit           0          2      0    2    0  0 s       -",
            "gone            0          7      -    -    -  -         -",
            "orders          0          2      0    5    3  1 m 30 s  reader",
            "orders          1          -      0    0    -  -         reader",
        ),
        "3 messages behind, the oldest waits for 1 m 30 s\n",
    )
    shown = json.loads(martlet("lag", "g", "--json").stdout)
    assert (shown["group"], shown["state"], shown["lag"]) == ("g", "Stable", 3)
    assert shown["lag_seconds"] == 90.5
    assert [entry["lag"] for entry in shown["partitions"]] == [0, None, 3, None]


def test_a_group_at_the_end_is_not_behind_and_one_without_anything_says_so(
    broker: FakeBroker, groups: FakeGroups, martlet: Any
) -> None:
    publish(broker, T0, 5)
    groups.groups = {"done": FakeGroup(offsets={T0: 5}), "new": FakeGroup()}
    assert martlet("lag", "done").stderr == "0 messages behind\n"
    assert martlet("lag", "new") == (0, "", "group new has committed nothing and reads nothing\n")


def test_lag_of_all_groups_is_one_line_each(broker: FakeBroker, groups: FakeGroups, martlet: Any) -> None:
    publish(broker, T0, 5)
    publish(broker, T1, 5, age_ms=7_200_500)
    groups.groups = {"b": FakeGroup(offsets={T0: 2, T1: 4}), "a": FakeGroup()}
    assert martlet("lag", "--all") == (
        0,
        lines(
            "GROUP  STATE  PARTITIONS  LAG  BEHIND",
            "a      Empty           0    -  -",
            "b      Empty           2    4  2 h 0 m",
        ),
        "",
    )
    assert [entry["lag"] for entry in json.loads(martlet("lag", "--all", "--json").stdout)] == [None, 4]


@pytest.mark.parametrize("arguments", [["lag"], ["lag", "g", "--all"]])
def test_lag_wants_a_group_or_all(groups: FakeGroups, martlet: Any, arguments: list[str]) -> None:
    ran = martlet(*arguments)
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert ran.stderr.startswith("error: give a group, or --all for every group\n")


@pytest.mark.parametrize(
    ("where", "after"),
    [
        (["--to", "earliest"], [0, 0]),
        (["--to", "latest"], [10, 4]),
        (["--to", "-3"], [7, 1]),
        (["--to", "2"], [2, 2]),
        (["--by", "1"], [6, 2]),
        (["--by", "-1"], [4, 0]),
    ],
)
def test_offsets_are_reset(
    broker: FakeBroker, groups: FakeGroups, martlet: Any, where: list[str], after: list[int]
) -> None:
    publish(broker, T0, 10)
    publish(broker, T1, 4)
    groups.groups["g"] = FakeGroup(offsets={T0: 5, T1: 1})
    ran = martlet("reset", "g", "--topic", "orders", *where, "--json")
    assert ran.exit_code == 0
    shown = json.loads(ran.stdout)
    assert [entry["after"] for entry in shown["partitions"]] == after
    assert [entry["before"] for entry in shown["partitions"]] == [5, 1]
    assert list(groups.groups["g"].offsets.values()) == after


def test_a_dry_run_only_shows_what_would_be_done(broker: FakeBroker, groups: FakeGroups, martlet: Any) -> None:
    publish(broker, T0, 10)
    groups.groups["g"] = FakeGroup(offsets={T0: 5})
    assert martlet("reset", "g", "--all-topics", "--to", "earliest", "--dry-run") == (
        0,
        lines("TOPIC   PARTITION  BEFORE  AFTER", "orders          0       5      0"),
        "nothing was changed: 1 offset would be\n",
    )
    assert groups.groups["g"].offsets == {T0: 5}
    assert not broker.asked(ApiKey.OFFSET_COMMIT)


def test_offsets_in_a_topic_that_was_deleted_are_left_alone(
    broker: FakeBroker, groups: FakeGroups, martlet: Any
) -> None:
    publish(broker, T0, 10)
    gone = TopicPartition("gone", 0)
    groups.groups["g"] = FakeGroup(offsets={T0: 5, gone: 7})
    assert martlet("reset", "g", "--all-topics", "--to", "earliest") == (
        0,
        lines(
            "TOPIC   PARTITION  BEFORE  AFTER",
            "gone            0       7      -",
            "orders          0       5      0",
        ),
        "gone-0 does not exist any more, so it was left alone\nreset 1 offset of g\n",
    )
    assert groups.groups["g"].offsets == {T0: 0, gone: 7}
    groups.groups["g"] = FakeGroup(offsets={gone: 7})
    assert martlet("reset", "g", "--all-topics", "--by", "-1").stderr.endswith("reset 0 offsets of g\n")


def test_what_a_partition_does_not_hold_is_moved_to_the_nearest_that_it_does(
    broker: FakeBroker, groups: FakeGroups, martlet: Any
) -> None:
    publish(broker, T0, 10)
    groups.groups["g"] = FakeGroup(offsets={T0: 5})
    assert martlet("reset", "g", "--topic", "orders:0", "--to", "99") == (
        0,
        lines("TOPIC   PARTITION  BEFORE  AFTER", "orders          0       5     10"),
        "orders-0 ends at 10, so that is taken for 99\nreset 1 offset of g\n",
    )
    ran = martlet("reset", "g", "--topic", "orders:0", "--by", "-11")
    assert ran.stderr == "orders-0 begins at 0, so that is taken for -1\nreset 1 offset of g\n"
    assert groups.groups["g"].offsets == {T0: 0}


def test_a_group_that_does_not_exist_yet_can_be_reset(broker: FakeBroker, groups: FakeGroups, martlet: Any) -> None:
    publish(broker, T0, 10)
    ran = martlet("reset", "new", "--topic", "orders:0,1", "--topic", "audit", "--to", "latest")
    assert ran == (
        0,
        lines(
            "TOPIC   PARTITION  BEFORE  AFTER",
            "audit           0  -           0",
            "orders          0  -          10",
            "orders          1  -           0",
        ),
        "reset 3 offsets of new\n",
    )
    assert groups.groups["new"].offsets == {T0: 10, T1: 0, AUDIT: 0}


def test_a_group_with_members_is_not_reset(broker: FakeBroker, groups: FakeGroups, martlet: Any) -> None:
    members = [FakeMember(f"m-{number}", f"reader-{number}") for number in range(5)]
    groups.groups["g"] = FakeGroup("consumer", "Stable", members, {T0: 5})
    assert martlet("reset", "g", "--all-topics", "--to", "earliest") == (
        5,
        "",
        "error: group 'g' has 5 members connected (reader-0 at 10.0.0.1, reader-1 at 10.0.0.1, "
        "reader-2 at 10.0.0.1 and 2 more), and only a group without members can be reset\n"
        " hint: stop those consumers; `martlet group describe g` shows when the group is Empty\n",
    )
    assert groups.groups["g"].offsets == {T0: 5}


def test_a_member_that_joins_meanwhile_is_named(broker: FakeBroker, groups: FakeGroups, martlet: Any) -> None:
    groups.groups["g"] = FakeGroup(offsets={T0: 5})

    def another_member_joins_first(request: OffsetCommitRequest, version: int) -> bytes:
        groups.groups["g"].members.append(FakeMember("m", "late"))
        response: OffsetCommitResponse = groups.offset_commit(request, version)
        return message_codec.encode(response, version)

    broker.scripts[ApiKey.OFFSET_COMMIT] = another_member_joins_first
    ran = martlet("reset", "g", "--all-topics", "--to", "earliest")
    assert (ran.exit_code, ran.stdout) == (5, "")
    assert "has 1 member connected (late at 10.0.0.1)" in ran.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--to", "earliest"], "say what to reset: --topic TOPIC[:PARTITION] or --all-topics"),
        (["--all-topics", "--topic", "orders", "--to", "earliest"], "say what to reset"),
        (["--all-topics"], "say where to: --to START or --by N"),
        (["--all-topics", "--to", "latest", "--by", "3"], "say where to"),
        (["--all-topics", "--to", "somewhere"], "'somewhere' is not a valid start; allowed are earliest"),
        (["--topic", "orders:x", "--to", "latest"], "'orders:x' is not TOPIC:PARTITION, like orders:0"),
        (["--topic", ":1", "--to", "latest"], "':1' names no topic"),
    ],
)
def test_a_reset_that_is_not_clear_is_refused(
    groups: FakeGroups, martlet: Any, arguments: list[str], sentence: str
) -> None:
    ran = martlet("reset", "g", *arguments)
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert sentence in ran.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--all-topics", "--to", "latest"], "group 'g' has committed nothing\n hint: name what to reset with --topic"),
        (["--topic", "orders:0", "--by", "3"], "group 'g' has committed nothing in orders-0, so there is nothing"),
        (["--topic", "missing", "--to", "latest"], "there is no topic 'missing'"),
        (["--topic", "orders:7", "--to", "latest"], "topic 'orders' has no partition 7; it has 2, numbered from 0"),
    ],
)
def test_a_reset_of_what_is_not_there_is_not_found(
    groups: FakeGroups, martlet: Any, arguments: list[str], sentence: str
) -> None:
    ran = martlet("reset", "g", *arguments)
    assert (ran.exit_code, ran.stdout) == (3, "")
    assert sentence in ran.stderr


def test_groups_are_deleted(groups: FakeGroups, martlet: Any) -> None:
    groups.groups = {"a": FakeGroup(), "b": FakeGroup(), "c": FakeGroup()}
    assert martlet("delete", "a", "b", "--yes") == (0, "", "deleted a\ndeleted b\n")
    assert martlet("delete", "a", "c", "--yes", "--if-exists", "--json").stdout == (
        '[{"group": "a", "deleted": false}, {"group": "c", "deleted": true}]\n'
    )
    assert groups.groups == {}


def test_a_group_named_twice_is_deleted_once(groups: FakeGroups, martlet: Any) -> None:
    groups.groups["a"] = FakeGroup()
    assert martlet("delete", "a", "a", "--yes") == (0, "", "deleted a\n")


def test_a_group_with_members_is_not_deleted(groups: FakeGroups, martlet: Any) -> None:
    groups.groups["g"] = busy()
    ran = martlet("delete", "g", "--yes")
    assert (ran.exit_code, ran.stdout) == (5, "")
    assert ran.stderr.startswith("error: group 'g' was not deleted: The group still has members.\n hint: ")


def test_deleting_asks_first(groups: FakeGroups, martlet: Any) -> None:
    groups.groups["g"] = FakeGroup()
    refused = martlet("delete", "g", stdin=b"n\n")
    assert (refused.exit_code, list(groups.groups)) == (1, ["g"])
    assert refused.stderr.endswith("error: nothing was deleted\n")
    nobody = martlet("delete", "g")
    assert (nobody.exit_code, list(groups.groups)) == (2, ["g"])
    agreed = martlet("delete", "g", stdin=b"y\n")
    assert (agreed.exit_code, list(groups.groups)) == (0, [])
    assert "Delete the committed offsets of g and the groups themselves, for good?" in agreed.stderr


def test_offsets_of_some_partitions_are_deleted(groups: FakeGroups, martlet: Any) -> None:
    groups.groups["g"] = FakeGroup(offsets={T0: 5, T1: 6, AUDIT: 7})
    ran = martlet("delete", "g", "--topic", "orders:1", "--topic", "audit", "--yes")
    assert ran == (0, "", "deleted 2 offsets of g: audit:0 orders:1\n")
    assert groups.groups["g"].offsets == {T0: 5}
    ran = martlet("delete", "g", "--topic", "audit", "--yes")
    assert (ran.exit_code, ran.stdout) == (3, "")
    assert ran.stderr.startswith("error: group 'g' has committed nothing in audit\n")


def test_names_of_groups_are_completed(broker: FakeBroker, groups: FakeGroups, bootstrap: str) -> None:
    groups.groups = {"orders-a": FakeGroup(), "orders-b": FakeGroup(), "other": FakeGroup()}
    environment = {
        "_MARTLET_COMPLETE": "bash_complete",
        "COMP_WORDS": "martlet group lag ord",
        "COMP_CWORD": "3",
        "MARTLET_BOOTSTRAP": bootstrap,
    }
    assert run_martlet(environment=environment).stdout == "plain,orders-a\nplain,orders-b\n"


def test_a_coordinator_that_never_comes_is_a_failure_to_reach_it(
    broker: FakeBroker, groups: FakeGroups, martlet: Any
) -> None:
    nobody = FindCoordinatorResponse(
        coordinators=[Coordinator(key="g", error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)]
    )
    broker.scripts[ApiKey.FIND_COORDINATOR] = lambda _request, version: message_codec.encode(nobody, version)
    ran = martlet("describe", "g", "--timeout", "0.2")
    assert (ran.exit_code, ran.stdout) == (6, "")
    assert "the coordinator of group 'g' was not found" in ran.stderr
