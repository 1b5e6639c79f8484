"""How long a broker that went without a word is still listed for clients, and which names were topics."""

from martlet.base.ids import BrokerId, Incarnation, TopicId
from martlet.broker.routing.departures import LISTED_ON_MS, TOPICS_MAX, Departures
from martlet.cluster.image import ImageDelta, LiveChange, TopicChange
from martlet.cluster.records import LiveRecord, TopicRecord
from martlet.testing.sim_clock import SimClock

ALIVE = LiveRecord(BrokerId(2), Incarnation(7))
LEAVING = LiveRecord(BrokerId(2), Incarnation(7), leaving=True)
AGAIN = LiveRecord(BrokerId(2), Incarnation(8))


def step(before: LiveRecord | None, after: LiveRecord | None) -> ImageDelta:
    return ImageDelta(1, live=(LiveChange(before, after),))


def test_one_that_went_without_a_word_is_listed_on_for_a_moment() -> None:
    clock = SimClock()
    departures = Departures(clock)
    departures.follow(step(ALIVE, None))
    assert departures.recent() == {2}
    clock.advance(LISTED_ON_MS - 1)
    assert departures.recent() == {2}
    clock.advance(1)
    assert departures.recent() == set()


def test_one_that_left_cleanly_is_not_listed_on() -> None:
    departures = Departures(SimClock())
    departures.follow(step(ALIVE, LEAVING))
    departures.follow(step(LEAVING, None))
    assert departures.recent() == set()


def test_one_that_is_back_did_not_depart() -> None:
    departures = Departures(SimClock())
    departures.follow(step(ALIVE, None))
    departures.follow(step(None, AGAIN))
    assert departures.recent() == set()


def topic(name: str) -> TopicRecord:
    return TopicRecord(name, TopicId(bytes(16)), 1, 1)


def test_a_name_was_a_topic_from_its_deletion_until_it_is_made_again() -> None:
    departures = Departures(SimClock())
    assert not departures.had_topic("orders")
    departures.follow(ImageDelta(1, topics=(TopicChange(topic("orders"), None),)))
    assert departures.had_topic("orders")
    departures.follow(ImageDelta(2, topics=(TopicChange(None, topic("orders")),)))
    assert not departures.had_topic("orders")


def test_a_change_of_settings_is_no_departure() -> None:
    departures = Departures(SimClock())
    departures.follow(ImageDelta(1, topics=(TopicChange(topic("orders"), topic("orders")),)))
    assert not departures.had_topic("orders")


def test_of_many_deleted_topics_the_last_are_remembered() -> None:
    departures = Departures(SimClock())
    names = [f"topic-{number}" for number in range(TOPICS_MAX + 1)]
    departures.follow(ImageDelta(1, topics=tuple(TopicChange(topic(name), None) for name in names)))
    assert [departures.had_topic(name) for name in names[:2] + names[-1:]] == [False, True, True]
