"""How long a broker that went without a word is still listed for clients."""

from martlet.base.ids import BrokerId, Incarnation
from martlet.broker.routing.departures import LISTED_ON_MS, Departures
from martlet.cluster.image import ImageDelta, LiveChange
from martlet.cluster.records import LiveRecord
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
