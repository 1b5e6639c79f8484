"""Topics that ask for a codec of their own: what is stored, what it is answered, and in which order."""

import os

import pytest

from martlet.base.errors import ErrorCode
from martlet.broker.handlers.produce import LONG_CHECK_BYTES
from martlet.wire.batch import iterate_batches
from martlet.wire.compression import Compression
from martlet.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.broker.raw_client import RawClient
from tests.broker.requests import (
    batch_of,
    create_topic,
    fetch_one,
    new_producer_id,
    publish,
    read_all,
    values_of,
)

SMALL = [b"payload %d " % number for number in range(20)]
LARGE = [os.urandom(40).hex().encode() for _ in range(1_000)]
NAMES = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}


def stored_codecs(client: RawClient, topic: str, offset: int = 0) -> list[int]:
    """The codec of each batch of a partition, which is read in one piece."""
    result = fetch_one(client, topic, offset)
    return [header.compression for _, header in iterate_batches(bytes(result.records))]


@pytest.mark.parametrize("values", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("name", NAMES)
def test_every_batch_is_stored_in_the_codec_of_its_topic(client: RawClient, name: str, values: list[bytes]) -> None:
    topic = create_topic(client, compression_type=name)
    for number, codec in enumerate(Compression):
        result = publish(client, topic, batch_of(*values, compression=codec))
        assert (result.error_code, result.base_offset) == (ErrorCode.NONE, number * len(values))
    assert stored_codecs(client, topic) == [NAMES[name]] * len(Compression)
    assert values_of(read_all(client, topic)) == values * len(Compression)


def test_a_batch_in_the_right_codec_is_kept_as_it_came(client: RawClient) -> None:
    topic = create_topic(client, compression_type="gzip", compression_gzip_level="1")
    batch = batch_of(*LARGE, compression=Compression.GZIP)
    assert publish(client, topic, batch).error_code == ErrorCode.NONE
    assert bytes(fetch_one(client, topic).records)[21:] == batch[21:]


def test_the_codec_can_be_changed_while_the_topic_is_written(client: RawClient) -> None:
    topic = create_topic(client)
    assert publish(client, topic, batch_of(*SMALL)).error_code == ErrorCode.NONE
    changes = [AlterableConfig("compression.type", 0, "zstd"), AlterableConfig("compression.zstd.level", 0, "19")]
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(2, topic, changes)])
    assert client.call(request, 1).responses[0].error_code == ErrorCode.NONE
    assert publish(client, topic, batch_of(*SMALL)).error_code == ErrorCode.NONE
    assert stored_codecs(client, topic) == [Compression.NONE, Compression.ZSTD]


def test_the_brokers_time_can_be_put_on_a_batch_that_gets_another_codec(client: RawClient) -> None:
    topic = create_topic(client, compression_type="lz4", message_timestamp_type="LogAppendTime")
    result = publish(client, topic, batch_of(*SMALL, compression=Compression.SNAPPY, timestamp_ms=5))
    records = read_all(client, topic)  # which checks the checksum
    assert {record.timestamp_ms for record in records} == {result.log_append_time_ms}
    assert values_of(records) == SMALL


def test_a_retry_of_an_idempotent_producer_gets_the_offset_of_the_first_try(client: RawClient) -> None:
    topic = create_topic(client, compression_type="zstd")
    batch = batch_of(*LARGE, compression=Compression.GZIP, producer=(new_producer_id(client), 0, 0))
    assert [publish(client, topic, batch).base_offset for _ in range(2)] == [0, 0]
    assert values_of(read_all(client, topic)) == LARGE


def test_batches_of_one_connection_keep_their_order_while_a_large_one_is_packed(client: RawClient) -> None:
    topic = create_topic(client, compression_type="zstd", compression_zstd_level="19")
    large = batch_of(*LARGE)
    assert len(large) > LONG_CHECK_BYTES
    batches = [large, batch_of(b"1"), batch_of(b"2", compression=Compression.GZIP), batch_of(*LARGE), batch_of(b"3")]
    for batch in batches:
        client.send_produce([(topic, None, [(0, batch)])], 9, acks=1)
    offsets = [client.receive_produce(9)[1].topics[0].partitions[0].base_offset for _ in batches]
    assert offsets == [0, 1000, 1001, 1002, 2002]
    assert values_of(read_all(client, topic)) == [*LARGE, b"1", b"2", *LARGE, b"3"]


def test_readers_that_are_too_old_for_zstd_get_an_error_that_says_so(client: RawClient) -> None:
    topic, other = create_topic(client, compression_type="zstd"), create_topic(client, compression_type="gzip")
    for name in (topic, other):
        assert publish(client, name, batch_of(*SMALL)).error_code == ErrorCode.NONE
    assert fetch_one(client, topic, version=9).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert len(fetch_one(client, topic, version=10).records) > 0
    assert len(fetch_one(client, other, version=9).records) > 0


def test_what_unpacks_to_more_than_a_batch_may_have_is_refused(client: RawClient) -> None:
    topic = create_topic(client, compression_type="uncompressed")
    bomb = batch_of(bytes(8 << 20), compression=Compression.GZIP)
    assert len(bomb) < LONG_CHECK_BYTES
    assert publish(client, topic, bomb).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert publish(client, topic, batch_of(b"fits")).base_offset == 0
