"""What a publish gets back: offsets and times when it is taken, the protocol's error for each way to be refused."""

import struct

import crc32c
import pytest

from martlet.base.errors import ErrorCode
from martlet.wire.batch import CONTROL_BIT, BatchHeader, build_batch, read_batch_header
from martlet.wire.compression import Compression
from martlet.wire.produce import VERSIONS
from tests.broker.raw_client import RawClient
from tests.broker.requests import (
    batch_of,
    create_topic,
    describe,
    fetch_one,
    list_offset,
    now_ms,
    publish,
    publish_values,
    read_all,
    records_of,
    values_of,
)

HOUR_MS = 3_600_000


def altered(batch: bytes, **fields: int) -> bytes:
    """The batch with other header fields and a checksum that fits them."""
    header = read_batch_header(batch)._replace(**fields)
    return sealed(struct.pack(">qiibIhiqqqhii", *header) + batch[61:])


def with_records(batch: bytes, records: bytes) -> bytes:
    """The batch with other bytes behind its header, of a length and checksum that fit them."""
    return altered(batch[:61] + records, batch_length=49 + len(records))


def sealed(batch: bytes) -> bytes:
    """The bytes with their true checksum."""
    return batch[:17] + struct.pack(">I", crc32c.crc32c(batch[21:])) + batch[21:]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_appends_and_tells_the_offset(client: RawClient, version: int) -> None:
    topic = create_topic(client)
    topic_id = describe(client, topic).topic_id if version >= 13 else None
    for expected in (0, 2):
        response = client.produce([(topic, topic_id, [(0, batch_of(b"a", b"b"))])], version)
        result = response.topics[0].partitions[0]
        assert (result.error_code, result.base_offset, result.log_append_time_ms) == (0, expected, -1)
        assert result.log_start_offset == (0 if version >= 5 else -1)
        assert response.topics[0].name == (None if version >= 13 else topic)
        assert response.topics[0].topic_id == topic_id
    assert values_of(read_all(client, topic)) == [b"a", b"b"] * 2


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("flush", ["never", "interval", "messages", "commit", "auto"])
def test_every_flush_policy_acknowledges(client: RawClient, acks: int, flush: str) -> None:
    topic = create_topic(client, martlet_flush=flush)
    for number in range(5):
        assert publish(client, topic, batch_of(b"%d" % number), acks=acks).base_offset == number
    assert len(read_all(client, topic)) == 5


@pytest.mark.parametrize("compression", Compression)
def test_every_compression_is_kept_as_it_came(client: RawClient, compression: Compression) -> None:
    topic = create_topic(client)
    values = [b"payload %d " % n * 50 for n in range(100)]
    batch = batch_of(*values, compression=compression)
    assert publish(client, topic, batch).error_code == ErrorCode.NONE
    result = fetch_one(client, topic)
    assert bytes(result.records)[21:] == batch[21:], "everything under the checksum is untouched"
    assert values_of(read_all(client, topic)) == values


def test_a_stored_batch_carries_its_offset_and_the_leader_epoch(client: RawClient) -> None:
    topic = create_topic(client)
    publish_values(client, topic, b"a", b"b", b"c")
    publish_values(client, topic, b"d")
    header = read_batch_header(bytes(fetch_one(client, topic, 3).records))
    assert header.base_offset == 3
    assert header.partition_leader_epoch == describe(client, topic).partitions[0].leader_epoch


def _damaged(batch: bytes, position: int) -> bytes:
    return batch[:position] + bytes((batch[position] ^ 0x40,)) + batch[position + 1 :]


GOOD = build_batch([(now_ms(), b"k", b"v%d" % n, ()) for n in range(3)])
REFUSED = {
    "no records": (None, ErrorCode.INVALID_RECORD),
    "empty records": (b"", ErrorCode.INVALID_RECORD),
    "a flipped bit in a record": (_damaged(GOOD, 70), ErrorCode.CORRUPT_MESSAGE),
    "a flipped bit in the checksum": (_damaged(GOOD, 18), ErrorCode.CORRUPT_MESSAGE),
    "a flipped bit in the record count": (_damaged(GOOD, 60), ErrorCode.CORRUPT_MESSAGE),
    "shorter than a header": (GOOD[:40], ErrorCode.CORRUPT_MESSAGE),
    "shorter than it claims": (GOOD[:-1], ErrorCode.CORRUPT_MESSAGE),
    "longer than it claims": (GOOD + b"\x00", ErrorCode.INVALID_RECORD),
    "a length of nothing": (altered(GOOD, batch_length=0), ErrorCode.CORRUPT_MESSAGE),
    "a negative length": (altered(GOOD, batch_length=-1), ErrorCode.CORRUPT_MESSAGE),
    "the largest length": (altered(GOOD, batch_length=2**31 - 1), ErrorCode.CORRUPT_MESSAGE),
    "two batches": (GOOD + GOOD, ErrorCode.INVALID_RECORD),
    "an old format": (altered(GOOD, magic=1), ErrorCode.INVALID_RECORD),
    "a future format": (altered(GOOD, magic=3), ErrorCode.INVALID_RECORD),
    "a control batch": (altered(GOOD, attributes=CONTROL_BIT), ErrorCode.INVALID_RECORD),
    "no record counted": (altered(GOOD, record_count=0, last_offset_delta=-1), ErrorCode.INVALID_RECORD),
    "a negative count": (altered(GOOD, record_count=-1), ErrorCode.INVALID_RECORD),
    "more counted than offsets": (altered(GOOD, record_count=4), ErrorCode.INVALID_RECORD),
    "more offsets than counted": (altered(GOOD, last_offset_delta=3), ErrorCode.INVALID_RECORD),
    "the most of both": (altered(GOOD, record_count=2**31 - 1, last_offset_delta=2**31 - 2), ErrorCode.INVALID_RECORD),
    "an offset of its own": (altered(GOOD, base_offset=7), ErrorCode.INVALID_RECORD),
    "a producer without sequence": (altered(GOOD, producer_id=5, producer_epoch=0), ErrorCode.INVALID_RECORD),
    "an unknown compression": (altered(GOOD, attributes=5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
}


@pytest.mark.parametrize(("batch", "expected"), REFUSED.values(), ids=REFUSED)
def test_a_broken_batch_is_refused_and_nothing_appended(
    client: RawClient, batch: bytes | None, expected: ErrorCode
) -> None:
    topic = create_topic(client)
    result = publish(client, topic, batch)
    assert result.error_code == expected, result
    assert result.base_offset == -1
    assert read_all(client, topic) == []
    assert publish_values(client, topic, b"next") == 0


LIARS = {
    "one record too many": altered(GOOD, record_count=4, last_offset_delta=3),
    "one record too few": altered(GOOD, record_count=2, last_offset_delta=1),
    "no records at all": with_records(GOOD, b"\xff" * 40),
    "compressed, too many": altered(
        batch_of(b"a", b"b", compression=Compression.GZIP), record_count=9, last_offset_delta=8
    ),
    "not what it is compressed as": altered(GOOD, attributes=Compression.ZSTD),
}


@pytest.mark.parametrize("batch", LIARS.values(), ids=LIARS)
def test_a_header_that_lies_about_its_records_harms_no_other_batch(client: RawClient, batch: bytes) -> None:
    """Records stay closed on the way in, so such a batch may be taken; what matters is everything around it."""
    topic = create_topic(client)
    publish_values(client, topic, b"before")
    result = publish(client, topic, batch)
    taken = read_batch_header(batch).record_count if result.error_code == ErrorCode.NONE else 0
    assert publish_values(client, topic, b"after") == 1 + taken
    late = publish(client, topic, batch_of(b"late", timestamp_ms=now_ms() + HOUR_MS // 2))
    assert late.base_offset == 2 + taken
    assert values_of(records_of(fetch_one(client, topic, 1 + taken))) == [b"after", b"late"]
    found = list_offset(client, topic, now_ms() + HOUR_MS // 4)
    assert (found.error_code, found.offset) == (ErrorCode.NONE, 2 + taken)
    list_offset(client, topic, 1)
    list_offset(client, topic, -3)
    assert client.api_versions().error_code == ErrorCode.NONE


def test_zstd_needs_a_version_that_knows_it(client: RawClient) -> None:
    topic = create_topic(client)
    batch = batch_of(b"x" * 100, compression=Compression.ZSTD)
    assert publish(client, topic, batch, version=6).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert publish(client, topic, batch, version=7).error_code == ErrorCode.NONE


@pytest.mark.parametrize("acks", [2, -2, 32767])
def test_an_acks_value_that_does_not_exist_is_refused(client: RawClient, acks: int) -> None:
    topic = create_topic(client)
    assert publish(client, topic, batch_of(b"x"), acks=acks).error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert read_all(client, topic) == []


def test_a_batch_larger_than_the_topic_allows_is_refused(client: RawClient) -> None:
    topic = create_topic(client, max_message_bytes="1000")
    fits = batch_of(bytes(1000 - len(batch_of(b"")) - 2))
    assert len(fits) <= 1000
    assert publish(client, topic, fits).error_code == ErrorCode.NONE
    assert publish(client, topic, batch_of(bytes(1000))).error_code == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("version", [7, 8, 9, 13])
def test_a_keyless_record_on_a_compacted_topic_is_named(client: RawClient, version: int) -> None:
    topic = create_topic(client, cleanup_policy="compact")
    topic_id = describe(client, topic).topic_id
    batch = build_batch([(now_ms(), b"key", b"a", ()), (now_ms(), None, b"b", ())])
    result = client.produce([(topic, topic_id, [(0, batch)])], version).topics[0].partitions[0]
    assert result.error_code == ErrorCode.INVALID_RECORD
    if version >= 8:
        assert [error.batch_index for error in result.record_errors] == [1]
        assert result.error_message
    assert publish(client, topic, batch_of(b"a", key=b"key")).error_code == ErrorCode.NONE


@pytest.mark.parametrize("offset_ms", [-2 * HOUR_MS, 2 * HOUR_MS])
def test_a_time_outside_what_the_topic_allows_is_refused(client: RawClient, offset_ms: int) -> None:
    topic = create_topic(
        client, message_timestamp_before_max_ms=str(HOUR_MS), message_timestamp_after_max_ms=str(HOUR_MS)
    )
    assert publish(client, topic, batch_of(b"x", timestamp_ms=now_ms() + offset_ms)).error_code == (
        ErrorCode.INVALID_TIMESTAMP
    )
    assert publish(client, topic, batch_of(b"x", timestamp_ms=now_ms() + offset_ms // 4)).error_code == ErrorCode.NONE


def test_the_broker_stamps_its_own_time_where_the_topic_says_so(client: RawClient) -> None:
    topic = create_topic(client, message_timestamp_type="LogAppendTime")
    before = now_ms()
    result = publish(client, topic, batch_of(b"a", b"b", timestamp_ms=1000))
    assert before <= result.log_append_time_ms <= now_ms()
    fetched = fetch_one(client, topic)
    header: BatchHeader = read_batch_header(bytes(fetched.records))
    assert header.uses_log_append_time
    assert [record.timestamp_ms for record in read_all(client, topic)] == [result.log_append_time_ms] * 2


def test_an_unknown_topic_or_partition_is_refused(client: RawClient) -> None:
    topic = create_topic(client, 2)
    for name, partition in ((topic, 2), (topic, -1), (topic, 2**31 - 1), ("never-created", 0)):
        result = publish(client, name, batch_of(b"x"), partition=partition)
        assert result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    response = client.produce([(None, bytes(range(16)), [(0, batch_of(b"x"))])], 13)
    assert response.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_publish_of_nothing_is_answered_with_nothing(client: RawClient) -> None:
    assert client.produce([]).topics == []
    topic = create_topic(client)
    assert client.produce([(topic, None, [])]).topics[0].partitions == []
