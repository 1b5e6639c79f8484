"""How long a broker that went without a word is still listed for clients, and which names were topics."""

from sim.clock import SimClock

from martlet.base.ids import BrokerId, Incarnation, TopicId
from martlet.broker.routing.departures import GONE_MS, LISTED_ON_MS, TOPICS_MAX, Departures
from martlet.cluster.image import ImageDelta, LiveChange, TopicChange
from martlet.cluster.records import LiveRecord, TopicRecord

ALIVE = LiveRecord(BrokerId(2), Incarnation(7))
LEAVING = LiveRecord(BrokerId(2), Incarnation(7), leaving=True)
EARLY_MS = -1
"""The client was connected long before."""
AGAIN = LiveRecord(BrokerId(2), Incarnation(8))


def step(before: LiveRecord | None, after: LiveRecord | None) -> ImageDelta:
    return ImageDelta(1, live=(LiveChange(before, after),))


def test_one_that_went_without_a_word_is_listed_on_for_a_moment() -> None:
    clock = SimClock()
    departures = Departures(clock)
    departures.follow(step(ALIVE, None))
    assert departures.recent(EARLY_MS) == {2}
    clock.advance(LISTED_ON_MS - 1)
    assert departures.recent(EARLY_MS) == {2}
    clock.advance(1)
    assert departures.recent(EARLY_MS) == set()


def test_one_that_left_cleanly_is_not_listed_on() -> None:
    departures = Departures(SimClock())
    departures.follow(step(ALIVE, LEAVING))
    departures.follow(step(LEAVING, None))
    assert departures.recent(EARLY_MS) == set()


def test_one_that_is_back_did_not_depart() -> None:
    departures = Departures(SimClock())
    departures.follow(step(ALIVE, None))
    departures.follow(step(None, AGAIN))
    assert departures.recent(EARLY_MS) == set()


def topic(name: str) -> TopicRecord:
    return TopicRecord(name, TopicId(bytes(16)), 1, 1)


def departures_without(*names: str) -> tuple[Departures, SimClock]:
    """These topics were deleted."""
    clock = SimClock()
    departures = Departures(clock)
    departures.follow(ImageDelta(1, topics=tuple(TopicChange(topic(name), None) for name in names)))
    return departures, clock


def test_a_deleted_topic_returns_for_who_goes_on_asking() -> None:
    departures, clock = departures_without("orders")
    assert departures.lets_return("payments")
    clock.advance(10 * GONE_MS)
    assert not departures.lets_return("orders"), "the first question, however late"
    clock.advance(GONE_MS - 1)
    assert not departures.lets_return("orders")
    clock.advance(1)
    assert departures.lets_return("orders")


def test_a_topic_that_was_made_again_and_deleted_again_is_gone_again() -> None:
    departures, clock = departures_without("orders")
    departures.lets_return("orders")
    clock.advance(GONE_MS)
    departures.follow(ImageDelta(2, topics=(TopicChange(None, topic("orders")),)))
    departures.follow(ImageDelta(3, topics=(TopicChange(topic("orders"), None),)))
    assert not departures.lets_return("orders")


def test_a_change_of_settings_is_no_departure() -> None:
    departures = Departures(SimClock())
    departures.follow(ImageDelta(1, topics=(TopicChange(topic("orders"), topic("orders")),)))
    assert departures.lets_return("orders")


def test_of_many_deleted_topics_the_last_are_remembered() -> None:
    names = [f"topic-{number}" for number in range(TOPICS_MAX + 1)]
    departures, _ = departures_without(*names)
    assert [departures.lets_return(name) for name in names[:2] + names[-1:]] == [True, False, False]


def test_a_client_that_came_later_never_hears_of_it() -> None:
    clock = SimClock()
    departures = Departures(clock)
    before_ms = clock.monotonic_ms()
    clock.advance(1)
    departures.follow(step(ALIVE, None))
    clock.advance(1)
    assert departures.recent(before_ms) == {2}
    assert departures.recent(clock.monotonic_ms()) == set()
