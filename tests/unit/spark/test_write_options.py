"""Options of writing: what they mean, and that what the sink does not offer is refused, not ignored."""

import pytest

from martlet.spark.failures import OptionRefused
from martlet.spark.write_options import parse_write_options
from martlet.wire.compression import Compression

NEEDED = {"kafka.bootstrap.servers": "broker:9092"}


def refusal(**given: str) -> str:
    with pytest.raises(OptionRefused) as caught:
        parse_write_options(NEEDED | {name.replace("__", "."): text for name, text in given.items()})
    return str(caught.value)


def test_what_spark_adds_to_the_options_is_let_pass() -> None:
    options = parse_write_options(NEEDED | {"checkpointlocation": "c", "queryname": "q", "topic": "out"})
    assert options.topic == "out"
    assert options.create_topics


def test_compression_has_two_names_and_five_codecs() -> None:
    assert parse_write_options(NEEDED | {"compression": "zstd"}).compression is Compression.ZSTD
    assert parse_write_options(NEEDED | {"kafka.compression.type": "LZ4"}).compression is Compression.LZ4
    assert "one of none, gzip, snappy, lz4, zstd" in refusal(compression="rar")


def test_exactly_once_is_refused_with_what_the_sink_does_instead() -> None:
    assert "the sink publishes at least once" in refusal(exactlyOnce="true")
    assert "transactions are not offered yet" in refusal(kafka__transactional__id="t")
    parse_write_options(NEEDED | {"exactlyOnce": "false"})


def test_weaker_promises_than_the_sinks_own_are_refused() -> None:
    assert "would lose messages" in refusal(kafka__acks="1")
    assert "always idempotent" in refusal(kafka__enable__idempotence="false")
    parse_write_options(NEEDED | {"kafka.acks": "all", "kafka.enable.idempotence": "true"})


def test_options_of_reading_are_refused_with_the_right_ones() -> None:
    assert "name the topic to write with the option topic" in refusal(subscribe="a")
    assert "did you mean topic?" in refusal(topics="a")
    assert "which Martlet does not offer yet" in refusal(kafka__security__protocol="SSL")
