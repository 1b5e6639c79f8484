"""However a stream is cut into pieces, the same frames come out of it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from martlet.base.errors import ProtocolViolation
from martlet.wire.frames import FrameReceiver

MAX = 5000

payloads = st.lists(
    st.one_of(st.binary(max_size=40), st.integers(0, MAX).map(lambda size: bytes([size % 251]) * size)), max_size=12
)


def framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


def receive(receiver: FrameReceiver, data: bytes, piece_bytes: list[int]) -> list[bytes]:
    """Receive in pieces of these sizes, over and over, each cut further where the buffer has less room."""
    frames: list[bytes] = []
    position = turn = 0
    while position < len(data):
        space = receiver.get_buffer()
        assert len(space) > 0
        count = min(len(space), len(data) - position, piece_bytes[turn % len(piece_bytes)])
        space[:count] = data[position : position + count]
        frames.extend(bytes(frame) for frame in receiver.received(count))
        position += count
        turn += 1
        assert receiver.capacity_bytes <= max(64, 4 * (MAX + 4), 256 * 1024)
    return frames


@settings(max_examples=150, deadline=None)
@given(payloads=payloads, tail=st.binary(max_size=3), initial_bytes=st.integers(1, 200))
def test_byte_by_byte_equals_all_at_once(payloads: list[bytes], tail: bytes, initial_bytes: int) -> None:
    data = b"".join(framed(payload) for payload in payloads) + tail
    whole, single = FrameReceiver(MAX, initial_bytes), FrameReceiver(MAX, initial_bytes)
    assert receive(single, data, [1]) == payloads
    assert receive(whole, data, [len(data) + 1]) == payloads
    assert single.pending_bytes == whole.pending_bytes == len(tail)


@settings(max_examples=200, deadline=None)
@given(
    payloads=payloads,
    pieces=st.lists(st.integers(1, 3000), min_size=1, max_size=10),
    initial_bytes=st.integers(1, 200),
)
def test_any_pieces_give_the_same_frames(payloads: list[bytes], pieces: list[int], initial_bytes: int) -> None:
    data = b"".join(framed(payload) for payload in payloads)
    receiver = FrameReceiver(MAX, initial_bytes)
    assert receive(receiver, data, pieces) == payloads
    receiver.release()
    assert receiver.capacity_bytes == 0


@settings(max_examples=200, deadline=None)
@given(payloads=payloads, length=st.integers(-(2**31), 2**31 - 1).filter(lambda length: not 0 <= length <= MAX))
def test_an_absurd_length_is_refused_after_the_frames_before_it(payloads: list[bytes], length: int) -> None:
    receiver = FrameReceiver(MAX)
    data = b"".join(framed(payload) for payload in payloads)
    assert receiver.feed(data) == payloads
    with pytest.raises(ProtocolViolation, match=str(length)):
        receiver.feed(length.to_bytes(4, "big", signed=True) + b"rest")


@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=300), pieces=st.lists(st.integers(1, 50), min_size=1, max_size=5))
def test_any_bytes_give_frames_or_a_violation(data: bytes, pieces: list[int]) -> None:
    try:
        frames = receive(FrameReceiver(MAX, 8), data, pieces)
    except ProtocolViolation:
        return
    assert data.startswith(b"".join(framed(frame) for frame in frames))
