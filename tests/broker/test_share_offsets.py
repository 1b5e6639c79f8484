"""Where share groups stand: shown, moved and forgotten, and the words of brokers among each other for it."""

import pytest

from martlet.base.errors import ErrorCode
from martlet.testing.running_broker import RunningBroker
from martlet.wire.messages import (
    alter_share_group_offsets,
    delete_share_group_offsets,
    describe_share_group_offsets,
    initialize_share_group_state,
    read_share_group_state_summary,
)
from tests.broker.group_requests import unique_group
from tests.broker.raw_client import RawClient
from tests.broker.requests import create_topic, describe, publish_values
from tests.broker.share_member import ShareMember, runs, set_group

ACCEPT = 1


class Stage:
    """Four messages, of which a group that has gone has finished the first and the third."""

    def __init__(self, client: RawClient, servers: str) -> None:
        self.client, self.servers = client, servers
        self.topic, self.group = create_topic(client), unique_group()
        self.topic_id = describe(client, self.topic).topic_id
        set_group(client, self.group, share__auto__offset__reset="earliest")
        publish_values(client, self.topic, b"a", b"b", b"c", b"d")
        with self.member() as member:
            member.fetch()
            assert member.acknowledge((0, 0, [ACCEPT]), (2, 2, [ACCEPT]), epoch=-1) is ErrorCode.NONE
            member.beat(-1)

    def member(self) -> ShareMember:
        return ShareMember(self.servers, self.group, self.topic, self.topic_id)

    def shown(
        self, *topics: tuple[str, int], version: int = 1
    ) -> list[describe_share_group_offsets.DescribeShareGroupOffsetsResponseTopic]:
        messages = describe_share_group_offsets
        named = [messages.DescribeShareGroupOffsetsRequestTopic(topic, [index]) for topic, index in topics]
        asked = messages.DescribeShareGroupOffsetsRequestGroup(self.group, named or None)
        (group,) = self.client.call(messages.DescribeShareGroupOffsetsRequest([asked]), version).groups
        assert (group.group_id, group.error_code) == (self.group, 0)
        found: list[messages.DescribeShareGroupOffsetsResponseTopic] = group.topics
        return found

    def move(
        self, offset: int, topic: str | None = None, index: int = 0
    ) -> alter_share_group_offsets.AlterShareGroupOffsetsResponse:
        messages = alter_share_group_offsets
        to = messages.AlterShareGroupOffsetsRequestPartition(index, offset)
        asked = messages.AlterShareGroupOffsetsRequestTopic(topic or self.topic, [to])
        response: messages.AlterShareGroupOffsetsResponse = self.client.call(
            messages.AlterShareGroupOffsetsRequest(self.group, [asked]), 0
        )
        return response

    def move_code(self, offset: int, topic: str | None = None, index: int = 0) -> int:
        response = self.move(offset, topic, index)
        return response.error_code or response.responses[0].partitions[0].error_code

    def forget(self, *topics: str) -> delete_share_group_offsets.DeleteShareGroupOffsetsResponse:
        messages = delete_share_group_offsets
        named = [messages.DeleteShareGroupOffsetsRequestTopic(topic) for topic in topics]
        response: messages.DeleteShareGroupOffsetsResponse = self.client.call(
            messages.DeleteShareGroupOffsetsRequest(self.group, named), 0
        )
        return response


@pytest.fixture
def stage(client: RawClient, broker: RunningBroker) -> Stage:
    return Stage(client, broker.bootstrap_servers)


def test_a_group_stands_at_its_first_message_that_is_not_finished(stage: Stage) -> None:
    (topic,) = stage.shown()
    (part,) = topic.partitions
    assert (topic.topic_name, topic.topic_id, part.partition_index) == (stage.topic, stage.topic_id, 0)
    assert (part.start_offset, part.lag, part.error_code) == (1, 2, 0)
    assert stage.shown(version=0)[0].partitions[0].start_offset == 1


def test_partitions_that_are_named_are_shown_whatever_they_are(stage: Stage) -> None:
    other = create_topic(stage.client)
    topics = stage.shown((stage.topic, 0), (other, 0), ("no-such-topic", 0), (stage.topic, 7))
    assert [(one.partitions[0].start_offset, one.partitions[0].error_code) for one in topics] == [
        (1, 0),
        (-1, 0),
        (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (-1, 0),
    ]


def test_a_group_that_is_not_there_has_an_error(client: RawClient) -> None:
    messages = describe_share_group_offsets
    asked = messages.DescribeShareGroupOffsetsRequestGroup("no-such-group", None)
    (group,) = client.call(messages.DescribeShareGroupOffsetsRequest([asked]), 1).groups
    assert group.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_without_members_is_moved(stage: Stage) -> None:
    assert stage.move_code(3) == 0
    assert stage.shown()[0].partitions[0].start_offset == 3
    with stage.member() as member:
        assert runs(member.fetch()) == [(3, 3, 1)]
        assert stage.move_code(0) == ErrorCode.NON_EMPTY_GROUP
        member.beat(-1)
    assert stage.move_code(0) == 0
    with stage.member() as member:
        assert runs(member.fetch()) == [(0, 3, 1)], "what was finished is delivered again"


def test_a_group_is_moved_in_topics_it_has_not_read_before(stage: Stage) -> None:
    other = create_topic(stage.client)
    publish_values(stage.client, other, b"x", b"y")
    assert stage.move_code(1, other) == 0
    assert {topic.topic_name: topic.partitions[0].start_offset for topic in stage.shown()} == {
        stage.topic: 1,
        other: 1,
    }


def test_it_is_moved_to_no_offset_and_no_partition_that_is_not_there(stage: Stage) -> None:
    assert stage.move_code(99) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert stage.move_code(0, "no-such-topic") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert stage.move_code(0, index=5) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    stage.group = "no-such-group"
    assert stage.move_code(0) == ErrorCode.GROUP_ID_NOT_FOUND


def test_where_a_group_stands_is_forgotten_topic_by_topic(stage: Stage) -> None:
    answer = stage.forget(stage.topic, "no-such-topic")
    assert answer.error_code == 0
    assert [(one.topic_name, one.error_code) for one in answer.responses] == [
        (stage.topic, 0),
        ("no-such-topic", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert stage.shown() == []
    with stage.member() as member:
        assert runs(member.fetch()) == [(0, 3, 1)], "it begins where its setting says"
        assert stage.forget(stage.topic).error_code == ErrorCode.NON_EMPTY_GROUP


def test_brokers_ask_each_other_where_a_group_stands_and_move_it(stage: Stage) -> None:
    state = read_share_group_state_summary
    asked = [state.ReadStateSummaryData(stage.topic_id, [state.PartitionData(0)])]
    (topic,) = stage.client.call(state.ReadShareGroupStateSummaryRequest(stage.group, asked), 1).results
    (part,) = topic.partitions
    assert (part.error_code, part.start_offset, part.delivery_complete_count) == (0, 1, 1)
    begun = initialize_share_group_state
    to_begin = [begun.InitializeStateData(stage.topic_id, [begun.PartitionData(0, 0, 4), begun.PartitionData(9, 0, 4)])]
    (topic,) = stage.client.call(begun.InitializeShareGroupStateRequest(stage.group, to_begin), 0).results
    assert [part.error_code for part in topic.partitions] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert stage.shown()[0].partitions[0].start_offset == 4
