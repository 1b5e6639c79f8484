"""The machine's clock and randomness keep the promises of their ports, and ids are what they say."""

import uuid

from martlet.base.clock import Clock, SystemClock
from martlet.base.ids import NO_TOPIC_ID, parse_topic_id
from martlet.base.randomness import IdSource, Randomness, SystemRandomness


class FixedRandomness:
    """Gives the same byte for ever."""

    def __init__(self, byte: int) -> None:
        self._byte = byte

    def below(self, limit: int) -> int:
        return self._byte % limit

    def fraction(self) -> float:
        return self._byte / 256

    def token(self, size: int) -> bytes:
        return bytes([self._byte]) * size


def test_wall_time_is_milliseconds_since_the_epoch() -> None:
    clock: Clock = SystemClock()
    assert 1_700_000_000_000 < clock.now_ms() < 10_000_000_000_000


def test_monotonic_time_never_goes_back() -> None:
    clock = SystemClock()
    readings = [clock.monotonic_ms() for _ in range(1_000)]
    assert readings == sorted(readings)


def test_draws_stay_within_their_bounds() -> None:
    randomness: Randomness = SystemRandomness()
    assert {randomness.below(3) for _ in range(200)} == {0, 1, 2}
    assert all(0 <= randomness.fraction() < 1 for _ in range(100))
    assert [len(randomness.token(size)) for size in (0, 1, 33)] == [0, 1, 33]
    assert randomness.token(16) != randomness.token(16)


def test_an_id_is_a_version_4_uuid_whatever_the_bytes_drawn() -> None:
    for byte in (0x00, 0x5A, 0xFF):
        made = uuid.UUID(bytes=IdSource(FixedRandomness(byte)).topic_id())
        assert made.version == 4
        assert made.variant == uuid.RFC_4122


def test_an_id_is_never_the_one_that_means_none() -> None:
    assert IdSource(FixedRandomness(0)).topic_id() != NO_TOPIC_ID


def test_a_text_id_is_a_printed_topic_id() -> None:
    text = IdSource(SystemRandomness()).text_id()
    assert len(parse_topic_id(text)) == 16
