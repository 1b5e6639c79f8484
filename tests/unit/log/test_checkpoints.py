"""The text files: Kafka's format to the byte, and no damage that goes unnoticed as something else."""

import pytest

from martlet.base.ids import TopicId, TopicPartition
from martlet.log.checkpoints import (
    BrokenCheckpoint,
    decode_epochs,
    decode_offsets,
    decode_topic_id,
    encode_epochs,
    encode_offsets,
    encode_topic_id,
)

OFFSETS = {TopicPartition("b", 1): 7, TopicPartition("a.x", 0): 12345678901}


def test_offsets_are_written_as_kafka_writes_them() -> None:
    content = encode_offsets(OFFSETS)
    assert content == b"0\n2\na.x 0 12345678901\nb 1 7\n"
    assert decode_offsets(content) == OFFSETS
    assert decode_offsets(encode_offsets({})) == {}


def test_epochs_are_written_as_kafka_writes_them() -> None:
    content = encode_epochs([(0, 0), (3, 17), (4, 17)])
    assert content == b"0\n3\n0 0\n3 17\n4 17\n"
    assert decode_epochs(content) == [(0, 0), (3, 17), (4, 17)]


def test_a_topic_id_is_written_as_kafka_writes_it() -> None:
    content = encode_topic_id(TopicId(bytes(range(16))))
    kafkas = b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    assert content.startswith(kafkas + b"\n")
    assert decode_topic_id(content) == decode_topic_id(kafkas) == bytes(range(16))
    assert decode_topic_id(content + b"\n") == bytes(range(16))


@pytest.mark.parametrize(
    "content",
    [b"", b"\0" * 20, b"0\n", b"0\n1\n", b"1\n0\n", b"0\n2\na 0 1\n", b"0\n1\na 0\n", b"0\n1\na 0 -1\n", b"0\n1\na 0 1",
     b"0\n1\na 0 x\n", b"0\n1\na 0 1\nb 0 1\n", b"0\n1\na  0 1\n", b"\xff\n", b"0\n-1\n",
     b"0\n1\na 0 " + b"9" * 30 + b"\n"],
)  # fmt: skip
def test_broken_offsets_are_refused(content: bytes) -> None:
    with pytest.raises(BrokenCheckpoint):
        decode_offsets(content)


@pytest.mark.parametrize("content", [b"0\n2\n1 5\n1 6\n", b"0\n2\n2 5\n1 6\n", b"0\n2\n1 5\n2 4\n", b"0\n1\n1 5 6\n"])
def test_epochs_that_go_backwards_are_refused(content: bytes) -> None:
    with pytest.raises(BrokenCheckpoint):
        decode_epochs(content)


@pytest.mark.parametrize("content", [b"", b"version: 1\ntopic_id: AAECAwQFBgcICQoLDA0ODw", b"version: 0\n", b"\xff",
                                     b"version: 0\ntopic_id: short", b"nonsense"])  # fmt: skip
def test_a_broken_topic_id_is_refused(content: bytes) -> None:
    with pytest.raises(BrokenCheckpoint):
        decode_topic_id(content)


def test_a_damaged_topic_id_is_never_another_one() -> None:
    topic_id = TopicId(bytes(range(16)))
    content = encode_topic_id(topic_id)
    damaged = [content[:size] for size in range(len(content))]
    for bit in range(len(content) * 8):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << (bit % 8)
        damaged.append(bytes(flipped))
    for broken in damaged:
        try:
            assert decode_topic_id(broken) == topic_id
        except BrokenCheckpoint:
            continue


def test_any_bit_flip_or_cut_is_refused_or_reads_as_offsets() -> None:
    content = encode_offsets(OFFSETS)
    damaged = [content[:size] for size in range(len(content))]
    for bit in range(len(content) * 8):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << (bit % 8)
        damaged.append(bytes(flipped))
    for broken in damaged:
        try:
            assert len(decode_offsets(broken)) == 2
        except BrokenCheckpoint:
            continue
