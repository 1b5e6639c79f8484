"""Options of reading: what they mean, and that a wrong one is refused with what would be right."""

import re

import pytest

from martlet.base.ids import TopicPartition
from martlet.client.offsets import EARLIEST, LATEST
from martlet.spark.failures import OptionRefused
from martlet.spark.positions import AtInstant, AtInstants, AtOffsets, EndOfLog
from martlet.spark.read_options import ReadOptions, parse_read_options
from martlet.spark.subscription import AssignedPartitions, NamedTopics, TopicPattern

NEEDED = {"kafka.bootstrap.servers": "broker:9092", "subscribe": "orders"}


def parsed(*, streaming: bool = False, **given: str) -> ReadOptions:
    return parse_read_options(
        NEEDED | {name.replace("__", "."): text for name, text in given.items()}, streaming=streaming
    )


def refusal(given: dict[str, str], *, streaming: bool = False) -> str:
    with pytest.raises(OptionRefused) as caught:
        parse_read_options(given, streaming=streaming)
    return str(caught.value)


def test_names_are_compared_without_regard_to_case() -> None:
    options = parse_read_options({"KAFKA.bootstrap.SERVERS": "h:1", "subscribepattern": "a.*"}, streaming=True)
    assert options.connection.bootstrap == "h:1"
    assert options.subscription == TopicPattern("a.*")


def test_a_batch_reads_everything_and_a_stream_what_comes_unless_told_otherwise() -> None:
    assert parsed().start == EndOfLog(EARLIEST)
    assert parsed(streaming=True).start == EndOfLog(LATEST)
    assert parsed().end == EndOfLog(LATEST)
    assert parsed().fail_on_data_loss


def test_topics_are_named_in_three_ways_and_exactly_one_is_used() -> None:
    assert parsed(subscribe=" a, b,a").subscription == NamedTopics(("a", "b"))
    assigned = parse_read_options({"bootstrap": "h", "assign": '{"a": [1, 0]}'}, streaming=False).subscription
    assert assigned == AssignedPartitions((TopicPartition("a", 0), TopicPartition("a", 1)))
    assert "exactly one of subscribe, subscribePattern and assign" in refusal({"bootstrap": "h"})
    assert "subscribe and assign were given" in refusal(NEEDED | {"assign": "{}"})
    assert "not a regular expression" in refusal({"bootstrap": "h", "subscribePattern": "("})


def test_starts_and_ends_are_offsets_or_instants_for_all_partitions_or_each() -> None:
    offsets = {TopicPartition("orders", 0): 23, TopicPartition("orders", 1): EARLIEST}
    assert parsed(startingOffsets='{"orders": {"0": 23, "1": -2}}').start == AtOffsets(offsets, "startingOffsets")
    assert parsed(startingTimestamp="1000").start == AtInstant(1000, False)
    assert parsed(endingTimestamp="1000").end == AtInstant(1000, True)
    by_time = parsed(
        startingOffsetsByTimestamp='{"orders": {"0": 5}}', startingOffsetsByTimestampStrategy="latest"
    ).start
    assert by_time == AtInstants({TopicPartition("orders", 0): 5}, True, "startingOffsetsByTimestamp")


def test_an_instant_for_all_is_stronger_than_instants_by_partition_and_those_than_offsets() -> None:
    given = {"startingOffsets": "latest", "startingOffsetsByTimestamp": '{"orders": {"0": 5}}'}
    assert isinstance(parse_read_options(NEEDED | given, streaming=False).start, AtInstants)
    instant = parse_read_options(NEEDED | given | {"startingTimestamp": "7"}, streaming=False).start
    assert instant == AtInstant(7, False)


def test_offsets_out_of_a_checkpoint_can_be_given_as_they_are() -> None:
    text = '{"orders": {"0": 5, "topicId": "AAAAAAAAAAAAAAAAAAAAAA"}}'
    assert parsed(startingOffsets=text).start == AtOffsets({TopicPartition("orders", 0): 5}, "startingOffsets")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"startingOffsets": "first"}, "startingOffsets is earliest, latest, or JSON like"),
        ({"startingOffsets": "{nonsense"}, "startingOffsets is JSON like"),
        ({"startingOffsets": '{"orders": {"0": -3}}'}, "-3 for partition 0 of 'orders' is no whole number"),
        ({"startingOffsets": '{"orders": {"zero": 3}}'}, "whole number of at least 0, not 'zero'"),
        ({"startingOffsets": '{"orders": 3}'}, "followed by numbers for its partitions"),
        ({"endingOffsets": "earliest"}, "cannot be earliest"),
        ({"endingOffsets": '{"orders": {"0": -2}}'}, "cannot be -2"),
        ({"startingTimestamp": "yesterday"}, "startingTimestamp is a whole number"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger is a whole number of at least 1, not '0'"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"}, "is more than maxOffsetsPerTrigger 5"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay is a duration like 500ms, 30s, 15m or 2h, not 'soon'"),
        ({"failOnDataLoss": "perhaps"}, "failOnDataLoss is true or false, not 'perhaps'"),
        ({"columns": "value,size"}, "there is no column 'size'; a message has key, value, topic"),
        ({"group": "a", "kafka.group.id": "b"}, "group and kafka.group.id mean the same but say different things"),
        ({"kafka.bootstrap.servers": "host:port"}, "'host:port' has no valid port"),
        ({"kafka.isolation.level": "serializable"}, "one of read_uncommitted, read_committed"),
    ],
)
def test_a_wrong_value_names_its_option_and_what_would_be_right(given: dict[str, str], words: str) -> None:
    assert words in refusal(NEEDED | given)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("subscrbe", "there is no option subscrbe for reading; did you mean subscribe?"),
        ("starting_offsets", "did you mean startingOffsets?"),
        ("bootstrap.servers", "did you mean kafka.bootstrap.servers?"),
        ("topic", "topic is for writing; name what to read with subscribe"),
        ("path", "call load() without a path"),
        ("kafka.auto.offset.reset", "say where to begin with startingOffsets"),
        ("kafka.key.deserializer", "keys are bytes"),
        ("kafka.sasl.jaas.config", "which Martlet does not offer yet"),
        ("kafka.ssl.truststore.location", "which Martlet does not offer yet"),
        ("zzz", "The options are: assign, bootstrap, columns"),
    ],
)
def test_an_option_that_does_not_exist_is_refused_with_the_right_ones(name: str, words: str) -> None:
    assert words in refusal(NEEDED | {name: "1"})


def test_options_that_only_tune_the_other_connector_may_stay() -> None:
    parsed(groupIdPrefix="p", kafka__fetch__max__bytes="1", kafka__session__timeout__ms="1")
    parse_read_options(NEEDED | {"fetchOffset.numRetries": "3"}, streaming=True)


def test_protocols_other_than_plaintext_are_refused_honestly() -> None:
    parsed(kafka__security__protocol="PLAINTEXT")
    assert "the only protocol is PLAINTEXT" in refusal(NEEDED | {"kafka.security.protocol": "SASL_SSL"})


def test_a_stream_has_no_end_and_takes_no_filters() -> None:
    for name, value in {"endingOffsets": "latest", "endingTimestamp": "5", "pushdown": "true"}.items():
        assert f"{name} is for batch reads" in refusal(NEEDED | {name: value}, streaming=True)


def test_a_rack_is_passed_on_to_the_fetches() -> None:
    assert (parsed(kafka__client__rack="east").rack, parsed().rack) == ("east", "")


def test_columns_are_those_of_sparks_kafka_source_and_headers_on_demand() -> None:
    assert parsed().columns == ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
    assert parsed(includeHeaders="true").columns[-1] == "headers"
    assert parsed(columns="VALUE, timestamptype").columns == ("value", "timestampType")


def test_durations_are_written_as_spark_writes_them() -> None:
    for text, milliseconds in {"250": 250, "250ms": 250, "2 s": 2000, "15m": 900_000, "1h": 3_600_000}.items():
        assert parsed(maxTriggerDelay=text).trigger_delay_ms_max == milliseconds


def test_an_address_is_required_and_may_be_called_bootstrap() -> None:
    assert re.match("where is the broker", refusal({"subscribe": "a"}))
    assert parse_read_options({"bootstrap": "h:1", "subscribe": "a"}, streaming=False).connection.bootstrap == "h:1"


def test_read_committed_and_group_are_passed_on() -> None:
    options = parsed(kafka__isolation__level="read_committed", kafka__group__id="pipeline", streaming=True)
    assert options.read_committed
    assert options.group == "pipeline"
