"""Which error codes an answer tells: all that stand in its version, and none that do not."""

import pytest

from martlet.base.errors import ErrorCode
from martlet.wire.message_codec import errors_in
from martlet.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from martlet.wire.messages.list_groups import ListGroupsRequest
from martlet.wire.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from martlet.wire.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)


def test_errors_of_all_levels_are_counted_as_often_as_they_stand_there() -> None:
    partitions = [MetadataResponsePartition(error_code=code) for code in (5, 0, 5, ErrorCode.UNKNOWN_SERVER_ERROR)]
    topics = [MetadataResponseTopic(error_code=3, name="a", partitions=partitions), MetadataResponseTopic(name="b")]
    response = MetadataResponse(topics=topics, error_code=41)
    assert sorted(errors_in(response, 13)) == [-1, 3, 5, 5, 41]
    assert sorted(errors_in(response, 12)) == [-1, 3, 5, 5]


def test_what_a_version_has_no_place_for_is_no_error_of_it() -> None:
    response = FindCoordinatorResponse(error_code=15, coordinators=[Coordinator(error_code=16)])
    assert errors_in(response, 3) == [15]
    assert errors_in(response, 4) == [16]


@pytest.mark.parametrize(("version", "errors"), [(7, [30]), (8, [14, 3])])
def test_each_layout_of_one_answer_counts_for_itself(version: int, errors: list[int]) -> None:
    partition = OffsetFetchResponsePartitions(error_code=3)
    group = OffsetFetchResponseGroup("g", [OffsetFetchResponseTopics("t", partitions=[partition])], error_code=14)
    assert sorted(errors_in(OffsetFetchResponse(error_code=30, groups=[group]), version)) == sorted(errors)


def test_a_message_without_errors_tells_none() -> None:
    assert errors_in(ListGroupsRequest(), 4) == []
