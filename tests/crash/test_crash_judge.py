"""The judge of the crash test finds each kind of wrong: a judge that cannot find anything would prove nothing."""

import pytest
from bench.crash.history import History, Kind, Name, ReadMessage, name_of, value_of, violations


def history_of(*names: Name) -> tuple[History, list[ReadMessage]]:
    """A history in which these were sent and acknowledged at offsets 0, 1, 2 …, and the partition as it should be."""
    history = History()
    for offset, name in enumerate(names):
        assert history.next_name(name.kind, name.partition) == name
        history.acknowledged[name] = offset
    return history, [ReadMessage(offset, value_of(name)) for offset, name in enumerate(names)]


FIRST, SECOND, THIRD = (Name(Kind.IDEMPOTENT, 0, number) for number in range(3))
OTHER = Name(Kind.SINGLE, 0, 0)


def test_a_faithful_log_has_no_violation() -> None:
    history, messages = history_of(FIRST, OTHER, SECOND)
    history.saw(0, messages)
    assert violations(history, {0: messages}) == []


def test_an_acknowledged_message_that_is_gone_is_lost() -> None:
    history, messages = history_of(FIRST, SECOND)
    assert violations(history, {0: messages[:1]}) == [
        "lost: idempotent message 1 of partition 0, acknowledged at offset 1"
    ]


def test_an_acknowledged_message_at_another_offset_has_moved() -> None:
    history, messages = history_of(FIRST)
    (found,) = violations(history, {0: [ReadMessage(5, messages[0].value)]})
    assert found.startswith("moved")


def test_a_message_that_is_there_twice_is_a_duplicate() -> None:
    history, messages = history_of(FIRST, SECOND)
    (found,) = violations(history, {0: [*messages, ReadMessage(2, value_of(FIRST))]})
    assert found.startswith("duplicate")


def test_messages_of_one_sender_that_changed_places_are_out_of_order() -> None:
    history, _ = history_of(FIRST, SECOND)
    history.acknowledged = {FIRST: 1, SECOND: 0}
    (found,) = violations(history, {0: [ReadMessage(0, value_of(SECOND)), ReadMessage(1, value_of(FIRST))]})
    assert found.startswith("out of order")


@pytest.mark.parametrize("damage", [b"i-0-0:other content", b"\x00\x01", b"", value_of(FIRST)[:-1]])
def test_content_that_was_never_sent_has_changed(damage: bytes) -> None:
    history, _ = history_of(FIRST)
    found = violations(history, {0: [ReadMessage(0, damage)]})
    assert found[0].startswith("changed")
    assert found[1].startswith("lost")


def test_a_message_with_a_number_not_given_out_was_never_sent() -> None:
    history, messages = history_of(FIRST)
    (found,) = violations(history, {0: [*messages, ReadMessage(1, value_of(THIRD))]})
    assert found.startswith("never sent")


def test_a_message_in_another_partition_was_never_sent_there() -> None:
    history, messages = history_of(FIRST)
    found = violations(history, {0: messages, 1: [ReadMessage(0, value_of(FIRST))]})
    assert any(text.startswith("never sent") for text in found)


def test_a_refused_message_must_not_be_there() -> None:
    history, messages = history_of(FIRST)
    history.acknowledged.clear()
    history.refused.add(FIRST)
    (found,) = violations(history, {0: messages})
    assert found.startswith("refused, but there")


def test_an_unknown_message_may_be_there_or_not_but_once() -> None:
    history, messages = history_of(FIRST)
    history.acknowledged.clear()
    history.unknown.add(FIRST)
    assert violations(history, {0: messages}) == []
    assert violations(history, {0: []}) == []
    assert violations(history, {0: [*messages, ReadMessage(1, messages[0].value)]})


def test_what_a_reader_was_given_must_stay() -> None:
    history, messages = history_of(FIRST, SECOND)
    history.acknowledged.clear()
    history.saw(0, messages)
    (found,) = violations(history, {0: messages[1:]})
    assert "once read as" in found


def test_offsets_that_do_not_rise_are_noticed() -> None:
    history, messages = history_of(FIRST, SECOND)
    found = violations(history, {0: [messages[0], ReadMessage(0, messages[1].value)]})
    assert any("comes after" in text for text in found)


def test_complaints_of_publishers_and_readers_are_violations() -> None:
    history, messages = history_of(FIRST)
    history.complaints.append("the reader is past the end")
    assert violations(history, {0: messages}) == ["the reader is past the end"]


def test_only_what_was_acknowledged_before_reading_must_have_been_read() -> None:
    history, messages = history_of(FIRST, SECOND)
    assert violations(history, {0: messages[:1]}, acknowledged={FIRST: 0}) == []


@pytest.mark.parametrize("kind", list(Kind))
def test_every_value_tells_its_name(kind: Kind) -> None:
    for number in range(50):
        name = Name(kind, 2, number)
        assert name_of(value_of(name)) == name
