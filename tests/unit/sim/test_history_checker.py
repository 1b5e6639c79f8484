"""The judge over a cluster's history finds each anomaly: a judge that cannot find anything would prove nothing."""

from collections.abc import Sequence

import pytest
from sim.history_checker import Anomaly, History, Name, ReadMessage, name_of, summary_of, value_of

P = "orders-0"


def kinds(history: History) -> list[Anomaly]:
    return [violation.anomaly for violation in history.judge()]


def at(offset: int, name: Name) -> ReadMessage:
    return ReadMessage(offset, value_of(name))


def sent(history: History, count: int, *, producer: str = "p", partition: str = P) -> list[Name]:
    return [history.sending(producer, partition) for _ in range(count)]


def good_history(count: int = 3) -> tuple[History, list[Name], list[ReadMessage]]:
    """All sent, acknowledged and read as they should be; not read back yet."""
    history = History()
    names = sent(history, count)
    for offset, name in enumerate(names):
        history.acknowledged(name, offset)
    content = [at(offset, name) for offset, name in enumerate(names)]
    history.saw("r", P, content)
    return history, names, content


def test_a_history_without_fault_has_no_violation() -> None:
    history, _, content = good_history()
    history.final(P, content)
    assert history.judge() == []
    assert history.counts() == {
        "sent": 3,
        "acknowledged": 3,
        "refused": 0,
        "unknown": 0,
        "read meanwhile": 3,
        "read back": 3,
    }


def test_an_acknowledged_message_below_the_end_that_is_not_there_is_lost() -> None:
    history = History()
    first, second = sent(history, 2)
    history.acknowledged(first, 0)
    history.acknowledged(second, 1)
    history.final(P, [at(1, second)])
    assert kinds(history) == [Anomaly.LOST]


def test_an_acknowledged_message_without_an_offset_can_be_lost_too() -> None:
    history = History()
    (name,) = sent(history, 1)
    history.acknowledged(name, None)
    history.final(P, [])
    assert kinds(history) == [Anomaly.LOST]


def test_an_acknowledged_message_above_the_end_is_unseen() -> None:
    history = History()
    first, second = sent(history, 2)
    history.acknowledged(first, 0)
    history.acknowledged(second, 1)
    history.final(P, [at(0, first)])
    assert kinds(history) == [Anomaly.UNSEEN]


def test_an_unknown_message_may_be_there_or_not() -> None:
    for content in ([0], []):
        history = History()
        (name,) = sent(history, 1)
        history.final(P, [at(offset, name) for offset in content])
        assert history.judge() == []


def test_an_unknown_message_that_was_read_must_stay() -> None:
    history = History()
    first, second = sent(history, 2)
    history.saw("r", P, [at(0, first)])
    history.acknowledged(second, 1)
    history.final(P, [at(1, second)])
    assert kinds(history) == [Anomaly.LOST]


def test_an_unknown_message_read_above_the_end_is_unseen() -> None:
    history = History()
    (name,) = sent(history, 1)
    history.saw("r", P, [at(0, name)])
    history.final(P, [])
    assert kinds(history) == [Anomaly.UNSEEN]


def test_a_message_at_two_offsets_is_a_duplicate() -> None:
    history, names, content = good_history()
    history.final(P, [*content, at(3, names[0])])
    assert kinds(history) == [Anomaly.DUPLICATE]


def test_a_message_that_moved_from_its_acknowledged_offset_is_a_duplicate() -> None:
    history = History()
    (name,) = sent(history, 1)
    history.acknowledged(name, 0)
    history.final(P, [at(7, name)])
    assert kinds(history) == [Anomaly.DUPLICATE]


def test_two_readers_given_different_messages_at_one_offset_is_inconsistent() -> None:
    history = History()
    first, second = sent(history, 2)
    history.saw("r", P, [at(0, first)])
    history.saw("s", P, [at(0, second)])
    assert [violation.anomaly for violation in history.found_so_far()] == [Anomaly.INCONSISTENT]


def test_two_acknowledgements_of_one_offset_are_inconsistent() -> None:
    history = History()
    first, second = sent(history, 2)
    history.acknowledged(first, 5)
    history.acknowledged(second, 5)
    assert [violation.anomaly for violation in history.found_so_far()] == [Anomaly.INCONSISTENT]


def test_messages_of_one_producer_in_another_order_are_reordered() -> None:
    history = History()
    first, second = sent(history, 2)
    history.final(P, [at(0, second), at(1, first)])
    assert kinds(history) == [Anomaly.REORDERED]


def test_messages_of_different_producers_have_no_order() -> None:
    history = History()
    (one,) = sent(history, 1, producer="p")
    (other,) = sent(history, 1, producer="q")
    history.final(P, [at(0, other), at(1, one)])
    assert history.judge() == []


def test_a_refused_message_that_is_there_is_an_aborted_read() -> None:
    history = History()
    (name,) = sent(history, 1)
    history.refused(name)
    history.final(P, [at(0, name)])
    assert kinds(history) == [Anomaly.ABORTED_READ]


def test_a_refused_message_that_only_a_reader_was_given_is_an_aborted_read_as_well() -> None:
    history = History()
    (name,) = sent(history, 1)
    history.refused(name)
    history.saw("r", P, [at(0, name)])
    history.final(P, [])
    assert kinds(history) == [Anomaly.UNSEEN, Anomaly.ABORTED_READ]


@pytest.mark.parametrize("damage", [b"", b"\x00", b"orders-0/p/0:other", value_of(Name(P, "p", 0))[:-1] + b"\x00"])
def test_content_that_was_never_sent_is_strange(damage: bytes) -> None:
    history = History()
    sent(history, 1)
    history.final(P, [ReadMessage(0, damage)])
    assert kinds(history) == [Anomaly.STRANGE]


def test_a_message_of_another_partition_or_not_yet_sent_is_strange() -> None:
    history = History()
    (elsewhere,) = sent(history, 1, partition="orders-1")
    history.final("orders-1", [])
    history.final(P, [at(0, elsewhere), at(1, Name(P, "p", 0))])
    assert kinds(history) == [Anomaly.STRANGE, Anomaly.STRANGE]


def test_a_reader_that_passes_over_a_message_has_skipped_it() -> None:
    history = History()
    names = sent(history, 3)
    history.saw("r", P, [at(0, names[0]), at(2, names[2])])
    history.final(P, [at(offset, name) for offset, name in enumerate(names)])
    assert kinds(history) == [Anomaly.SKIPPED]


def test_gaps_where_nothing_is_are_not_skipped() -> None:
    history = History()
    names = sent(history, 2)
    content = [at(0, names[0]), at(9, names[1])]
    history.saw("r", P, content)
    history.final(P, content)
    assert history.judge() == []


def test_a_reader_that_goes_back_is_noticed() -> None:
    history, _, content = good_history()
    history.saw("r", P, content[1:2])
    history.final(P, content)
    assert kinds(history) == [Anomaly.BACKWARD]


def test_a_reader_that_sought_may_start_anywhere() -> None:
    history, _, content = good_history(5)
    history.sought("r", P)
    history.saw("r", P, content[:1])
    history.sought("r", P)
    history.saw("r", P, content[3:])
    history.final(P, content)
    assert history.judge() == []


def test_what_the_final_reader_gets_must_rise() -> None:
    history, _, content = good_history()
    history.final(P, [content[0], content[2], content[1]])
    assert kinds(history) == [Anomaly.BACKWARD]


def test_a_partition_that_was_not_read_back_cannot_pass() -> None:
    history, _, _ = good_history()
    assert kinds(history) == [Anomaly.COMPLAINT]


def test_complaints_and_contradicting_outcomes_are_violations() -> None:
    history, names, content = good_history()
    history.complain("the producer failed for good")
    history.refused(names[0])
    history.acknowledged(names[1], 1)
    history.final(P, content)
    found = [violation for violation in history.judge() if violation.anomaly is Anomaly.COMPLAINT]
    assert len(found) == 3


@pytest.mark.parametrize("name", [Name(P, "p", 0), Name("a/b-3", "q-1", 12_345)])
def test_every_value_tells_its_name(name: Name) -> None:
    assert name_of(value_of(name)) == name
    assert name_of(value_of(name) + b"x") is None


@pytest.mark.parametrize(("found", "text"), [([], "none"), ([Anomaly.LOST, Anomaly.LOST], "lost 2")])
def test_a_summary_counts_by_kind(found: Sequence[Anomaly], text: str) -> None:
    history = History()
    names = sent(history, 3)
    for name in names[: len(found)]:
        history.acknowledged(name, names.index(name))
    history.final(P, [at(2, names[2])])
    assert summary_of(history.judge()) == text
