"""The hand-written codec of share fetches says what the generic one says, however a client cuts what it says."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from martlet.base.errors import ProtocolViolation
from martlet.wire.leader_hints import CurrentLeader, NodeEndpoint
from martlet.wire.message_codec import decode, encode
from martlet.wire.messages import share_acknowledge, share_fetch
from martlet.wire.share_fetch import (
    MISCOUNTED,
    VERSIONS,
    Run,
    SharePartitionAsked,
    SharePartitionResult,
    encode_share_fetch_response,
    parse_share_acknowledge_request,
    parse_share_fetch_request,
)

int16s = st.integers(-(1 << 15), (1 << 15) - 1)
int32s = st.integers(-(1 << 31), (1 << 31) - 1)
offsets = st.integers(-2, 12)
int64s = st.integers(-(1 << 63), (1 << 63) - 1) | offsets
texts = st.text(st.characters(codec="utf-8"), max_size=8) | st.just("t" * 130)
topic_ids = st.binary(min_size=16, max_size=16)
types = st.integers(-128, 127) | st.integers(0, 3)


def few(elements: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(elements, max_size=4)


@st.composite
def batches(draw: st.DrawFn, module: Any) -> Any:
    first = draw(offsets)
    length = draw(st.integers(1, 4))
    said = draw(st.lists(types, min_size=1, max_size=1) | st.lists(types, max_size=4))
    return module.AcknowledgementBatch(first, first + length - 1, said)


def single(offset: int, type_: int, module: Any) -> Any:
    return module.AcknowledgementBatch(offset, offset, [type_])


def said(module: Any) -> st.SearchStrategy[list[Any]]:
    in_order = st.lists(st.integers(0, 2), max_size=8).map(
        lambda kinds: [single(offset, kind, module) for offset, kind in enumerate(kinds)]
    )
    return few(batches(module)) | in_order


def topics(module: Any, topic: type[Any], partition: type[Any]) -> st.SearchStrategy[list[Any]]:
    return few(st.builds(topic, topic_ids, few(st.builds(partition, int32s, said(module)))))


fetches = st.builds(
    share_fetch.ShareFetchRequest,
    st.none() | texts,
    st.none() | texts,
    *(int32s for _ in range(6)),
    st.integers(-128, 127),
    st.booleans(),
    topics(share_fetch, share_fetch.FetchTopic, share_fetch.FetchPartition),
    few(st.builds(share_fetch.ForgottenTopic, topic_ids, few(int32s))),
)
acknowledgements = st.builds(
    share_acknowledge.ShareAcknowledgeRequest,
    st.none() | texts,
    st.none() | texts,
    int32s,
    st.booleans(),
    topics(share_acknowledge, share_acknowledge.AcknowledgeTopic, share_acknowledge.AcknowledgePartition),
)


def meant(batches: list[Any]) -> list[Run]:
    """Offset by offset, what makes sense; batches that make none as they are."""
    found: list[Run] = []
    for batch in batches:
        first, last, types = batch.first_offset, batch.last_offset, batch.acknowledge_types
        if len(types) not in (1, last - first + 1):
            found.append((first, last, MISCOUNTED))
        else:
            found += [(at, at, types[(at - first) % len(types)]) for at in range(first, last + 1)]
    return found


def one_by_one(runs: list[Run]) -> list[Run]:
    found: list[Run] = []
    for first, last, type_ in runs:
        if type_ == MISCOUNTED:
            found.append((first, last, type_))
        else:
            found += [(at, at, type_) for at in range(first, last + 1)]
    return found


def check_partitions(parsed: list[SharePartitionAsked], sent: list[Any]) -> None:
    flat = [(topic.topic_id, one) for topic in sent for one in topic.partitions]
    assert [(one.topic_id, one.partition) for one in parsed] == [(id_, one.partition_index) for id_, one in flat]
    for one, (_, asked) in zip(parsed, flat, strict=True):
        assert one_by_one(one.acknowledgements) == meant(asked.acknowledgement_batches)
        neighbours = zip(one.acknowledgements, one.acknowledgements[1:], strict=False)
        assert not any(
            before[1] + 1 == after[0] and before[2] == after[2] != MISCOUNTED for before, after in neighbours
        )


@pytest.mark.parametrize("version", VERSIONS)
@settings(deadline=None)
@given(request=fetches)
def test_a_share_fetch_reads_as_it_was_written(version: int, request: share_fetch.ShareFetchRequest) -> None:
    parsed = parse_share_fetch_request(memoryview(encode(request, version) + b"more"), version)
    again = decode(share_fetch.ShareFetchRequest, version, encode(request, version))
    assert parsed[:10] == (
        again.group_id,
        again.member_id,
        again.share_session_epoch,
        again.max_wait_ms,
        again.min_bytes,
        again.max_bytes,
        again.max_records,
        again.batch_size,
        again.share_acquire_mode,
        again.is_renew_ack,
    )
    check_partitions(parsed.partitions, request.topics)
    forgotten = [(topic.topic_id, index) for topic in request.forgotten_topics_data for index in topic.partitions]
    assert parsed.forgotten == forgotten


@pytest.mark.parametrize("version", VERSIONS)
@settings(deadline=None)
@given(request=acknowledgements)
def test_a_share_acknowledge_reads_as_it_was_written(
    version: int, request: share_acknowledge.ShareAcknowledgeRequest
) -> None:
    parsed = parse_share_acknowledge_request(encode(request, version), version)
    again = decode(share_acknowledge.ShareAcknowledgeRequest, version, encode(request, version))
    assert parsed[:4] == (again.group_id, again.member_id, again.share_session_epoch, again.is_renew_ack)
    check_partitions(parsed.partitions, request.topics)


results = st.builds(
    SharePartitionResult,
    int32s,
    int16s,
    st.none() | texts,
    int16s,
    st.none() | texts,
    st.builds(CurrentLeader, int32s, int32s),
    few(st.binary(max_size=200)),
    few(st.tuples(int64s, int64s, int16s)),
)


@pytest.mark.parametrize("version", VERSIONS)
@settings(deadline=None)
@given(
    answer=few(st.tuples(topic_ids, few(results))),
    endpoints=few(st.builds(NodeEndpoint, int32s, texts, int32s, st.none() | texts)),
    message=st.none() | texts,
    numbers=st.tuples(int16s, int32s, int32s),
)
def test_a_response_reads_as_it_was_written(
    version: int, answer: Any, endpoints: list[NodeEndpoint], message: str | None, numbers: tuple[int, int, int]
) -> None:
    code, lease_ms, throttle_ms = numbers
    chunks = encode_share_fetch_response(
        version,
        answer,
        error_code=code,
        error_message=message,
        lease_ms=lease_ms,
        throttle_time_ms=throttle_ms,
        node_endpoints=endpoints,
    )
    response = share_fetch.ShareFetchResponse(
        throttle_ms,
        code,
        message,
        lease_ms,
        [
            share_fetch.ShareFetchableTopicResponse(
                topic_id,
                [
                    share_fetch.PartitionData(
                        one.partition,
                        one.error_code,
                        one.error_message,
                        one.acknowledge_error_code,
                        one.acknowledge_error_message,
                        share_fetch.LeaderIdAndEpoch(*one.current_leader),
                        b"".join(one.records),
                        [share_fetch.AcquiredRecords(*run) for run in one.acquired],
                    )
                    for one in of_topic
                ],
            )
            for topic_id, of_topic in answer
        ],
        [share_fetch.NodeEndpoint(*one) for one in endpoints],
    )
    assert b"".join(chunks) == encode(response, version)


@pytest.mark.parametrize("parse", [parse_share_fetch_request, parse_share_acknowledge_request])
@pytest.mark.parametrize("version", VERSIONS)
@settings(deadline=None)
@given(data=st.binary(max_size=200))
def test_any_bytes_are_a_request_or_a_violation(parse: Any, version: int, data: bytes) -> None:
    try:
        parse(data, version)
    except ProtocolViolation:
        return


@pytest.mark.parametrize("version", VERSIONS)
@settings(deadline=None, max_examples=30)
@given(request=fetches)
def test_a_request_cut_short_is_a_violation(version: int, request: share_fetch.ShareFetchRequest) -> None:
    body = encode(request, version)
    for length in range(len(body)):
        with pytest.raises(ProtocolViolation):
            parse_share_fetch_request(body[:length], version)
