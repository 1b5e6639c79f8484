"""The receive buffer: what is copied, how it grows, when it goes, and how long a frame is valid."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import pytest
import uvloop

from martlet.base.errors import ProtocolViolation
from martlet.wire.frames import FIRST_BYTES, RETAINED_BYTES, WORKING_BYTES, FrameReceiver

MAX = 100 * 1024 * 1024


def framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


def put(receiver: FrameReceiver, data: bytes) -> int:
    """Receive as a socket would: as much as the buffer takes; says how much that was."""
    space = receiver.get_buffer()
    count = min(len(space), len(data))
    space[:count] = data[:count]
    return count


def receive_all(receiver: FrameReceiver, data: bytes, at_most: int = MAX) -> list[bytes]:
    frames: list[bytes] = []
    while data:
        count = put(receiver, data[:at_most])
        frames += [bytes(frame) for frame in receiver.received(count)]
        data = data[count:]
    return frames


def test_frames_come_without_their_prefix_and_in_order() -> None:
    receiver = FrameReceiver(MAX)
    assert receive_all(receiver, framed(b"one") + framed(b"") + framed(b"three")) == [b"one", b"", b"three"]
    assert receiver.pending_bytes == 0


def test_a_partial_frame_waits_for_its_rest() -> None:
    receiver = FrameReceiver(MAX)
    assert receive_all(receiver, framed(b"one") + framed(b"second")[:7]) == [b"one"]
    assert receiver.pending_bytes == 7
    assert receive_all(receiver, b"ond") == [b"second"]


def test_a_prefix_that_arrives_byte_by_byte_is_understood() -> None:
    receiver = FrameReceiver(MAX)
    assert receive_all(receiver, framed(b"abc"), at_most=1) == [b"abc"]


def test_frames_are_writable_views_of_the_buffer_itself() -> None:
    receiver = FrameReceiver(MAX)
    space = receiver.get_buffer()
    count = put(receiver, framed(b"abc"))
    (frame,) = receiver.received(count)
    assert frame.obj is space.obj
    frame[0] = ord("z")
    assert bytes(space[4:7]) == b"zbc"


def test_a_frame_is_overwritten_once_more_is_received() -> None:
    receiver = FrameReceiver(MAX)
    (frame,) = receiver.received(put(receiver, framed(b"abc")))
    put(receiver, framed(b"xyz"))
    assert bytes(frame) == b"xyz"


def test_frames_not_consumed_stay_for_later() -> None:
    receiver = FrameReceiver(MAX)
    frames = receiver.received(put(receiver, framed(b"one") + framed(b"two") + framed(b"three")))
    assert bytes(next(frames)) == b"one"
    assert receiver.pending_bytes == 16
    assert [bytes(frame) for frame in receiver.received(0)] == [b"two", b"three"]


def test_receiving_goes_on_while_frames_are_not_consumed() -> None:
    receiver = FrameReceiver(MAX, initial_bytes=8)
    data = b"".join(framed(bytes([number]) * 100_000) for number in range(20))
    position = 0
    while position < len(data):
        count = put(receiver, data[position:])
        assert count > 0
        receiver.received(count)
        position += count
    assert [bytes(frame) for frame in receiver.received(0)] == [bytes([number]) * 100_000 for number in range(20)]


def test_bytes_count_as_received_even_if_they_are_not_iterated() -> None:
    receiver = FrameReceiver(MAX)
    receiver.received(put(receiver, framed(b"abc")))
    assert receiver.pending_bytes == 7


def test_a_new_receiver_holds_no_buffer_and_starts_small() -> None:
    receiver = FrameReceiver(MAX)
    assert receiver.capacity_bytes == 0
    assert len(receiver.get_buffer()) == FIRST_BYTES


def test_a_declared_length_allocates_nothing() -> None:
    receiver = FrameReceiver(MAX)
    receive_all(receiver, MAX.to_bytes(4, "big"))
    assert len(receiver.get_buffer()) == FIRST_BYTES - 4
    assert receiver.capacity_bytes == FIRST_BYTES


def test_the_buffer_at_most_doubles_what_has_arrived() -> None:
    receiver = FrameReceiver(MAX)
    data = framed(bytes(3_000_000))
    sent = 0
    while sent < len(data) - 1:
        count = put(receiver, data[sent:-1])
        assert list(receiver.received(count)) == []
        sent += count
        assert receiver.capacity_bytes <= max(FIRST_BYTES, 2 * sent)
    assert receive_all(receiver, data[-1:]) == [bytes(3_000_000)]


def test_a_frame_that_does_not_fit_behind_its_predecessor_moves_to_the_front() -> None:
    receiver = FrameReceiver(MAX, initial_bytes=64)
    first, second = framed(b"a" * 30), framed(bytes(range(50)))
    assert receive_all(receiver, first + second[:20]) == [b"a" * 30]
    space = receiver.get_buffer()
    assert (len(space), receiver.capacity_bytes) == (44, 64)
    assert receive_all(receiver, second[20:]) == [bytes(range(50))]


def test_a_frame_that_overlaps_its_new_place_moves_intact() -> None:
    receiver = FrameReceiver(MAX, initial_bytes=64)
    second = framed(bytes(range(58)))
    assert receive_all(receiver, framed(b"abc") + second[:50]) == [b"abc"]
    assert receive_all(receiver, second[50:]) == [bytes(range(58))]


def test_a_frame_that_fits_behind_its_predecessor_stays_where_it_is() -> None:
    receiver = FrameReceiver(MAX, initial_bytes=64)
    assert receive_all(receiver, framed(b"a" * 10) + framed(b"b" * 40)[:20]) == [b"a" * 10]
    assert len(receiver.get_buffer()) == 64 - 14 - 20


def test_a_busy_connection_works_its_way_up_to_the_working_size() -> None:
    receiver = FrameReceiver(MAX)
    receive_all(receiver, framed(bytes(1000)) * 2000)
    assert receiver.capacity_bytes == WORKING_BYTES


def test_the_buffer_for_usual_large_frames_is_kept() -> None:
    receiver = FrameReceiver(MAX)
    receive_all(receiver, framed(bytes(1_048_700)))
    capacity = receiver.capacity_bytes
    assert 1_048_704 <= capacity <= RETAINED_BYTES
    receive_all(receiver, framed(bytes(1_049_000)) * 3)
    receiver.get_buffer()
    assert receiver.capacity_bytes == capacity


def test_the_buffer_for_a_huge_frame_goes_when_the_frame_is_done() -> None:
    receiver = FrameReceiver(MAX)
    receive_all(receiver, framed(bytes(5_000_000)))
    assert receiver.capacity_bytes >= 5_000_000
    receiver.get_buffer()
    assert receiver.capacity_bytes == WORKING_BYTES


def test_release_drops_an_empty_buffer_and_receiving_goes_on_after_it() -> None:
    receiver = FrameReceiver(MAX)
    receive_all(receiver, framed(b"abc"))
    receiver.release()
    assert receiver.capacity_bytes == 0
    assert receive_all(receiver, framed(b"abc")) == [b"abc"]


def test_release_keeps_what_is_pending() -> None:
    receiver = FrameReceiver(MAX)
    receive_all(receiver, framed(b"abc")[:5])
    receiver.release()
    assert receive_all(receiver, b"bc") == [b"abc"]


def test_growing_does_not_mind_views_that_are_still_held() -> None:
    receiver = FrameReceiver(MAX, initial_bytes=16)
    held = list(receiver.received(put(receiver, framed(b"abc"))))
    assert receive_all(receiver, framed(bytes(1000))) == [bytes(1000)]
    assert len(held[0]) == 3


@pytest.mark.parametrize("length", [-1, -(2**31), MAX + 1, 2**31 - 1])
def test_an_impossible_length_is_a_violation(length: int) -> None:
    with pytest.raises(ProtocolViolation, match=f"{length} bytes"):
        receive_all(FrameReceiver(MAX), length.to_bytes(4, "big", signed=True))


def test_the_largest_allowed_length_is_allowed() -> None:
    assert receive_all(FrameReceiver(10), framed(bytes(10))) == [bytes(10)]


def test_frames_before_an_impossible_length_are_handed_out_first() -> None:
    receiver = FrameReceiver(MAX)
    frames = receiver.received(put(receiver, framed(b"abc") + b"\xff\xff\xff\xff"))
    assert bytes(next(frames)) == b"abc"
    with pytest.raises(ProtocolViolation):
        next(frames)


def test_the_limit_may_be_lifted_later() -> None:
    receiver = FrameReceiver(5)
    assert receive_all(receiver, framed(b"small")) == [b"small"]
    receiver.max_frame_bytes = 6
    assert receive_all(receiver, framed(b"larger")) == [b"larger"]


@pytest.mark.parametrize(
    ("opening", "guess"),
    [
        (b"\x16\x03\x01\x02\x00\x01", "TLS handshake"),
        (b"GET / HTTP/1.1\r\n", "HTTP request"),
        (b"POST /topics HTTP/1.1\r\n", "HTTP request"),
        (b"PRI * HTTP/2.0\r\n", "gRPC"),
        (b"SSH-2.0-OpenSSH", "SSH"),
    ],
)
def test_other_protocols_are_recognised(opening: bytes, guess: str) -> None:
    with pytest.raises(ProtocolViolation, match=guess):
        receive_all(FrameReceiver(MAX), opening)


def test_feed_copies_frames_out() -> None:
    receiver = FrameReceiver(MAX, initial_bytes=8)
    assert receiver.feed(framed(b"one") + framed(b"x" * 1000) + b"\x00") == [b"one", b"x" * 1000]
    assert receiver.feed(b"") == []
    assert receiver.feed(memoryview(b"\x00\x00\x01z")) == [b"z"]


class _Collector(asyncio.BufferedProtocol):
    """What the broker's connection does with a receiver, less the broker."""

    def __init__(self, expected: int) -> None:
        self.receiver = FrameReceiver(MAX)
        self.frames: list[bytes] = []
        self.done = asyncio.get_running_loop().create_future()
        self._expected = expected

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.receiver.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self.frames.extend(bytes(frame) for frame in self.receiver.received(nbytes))
        if len(self.frames) == self._expected:
            self.done.set_result(None)


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_it_serves_a_buffered_protocol_of_either_event_loop(loop_factory: Callable[[], Any]) -> None:
    payloads = [bytes([number]) * size for number, size in enumerate((1, 20_000, 0, 700_000, 300, 1_100_000, 5))]

    async def run() -> list[bytes]:
        near, far = socket.socketpair()
        near.setblocking(False)
        far.setblocking(False)
        loop = asyncio.get_running_loop()
        transport, collector = await loop.create_connection(lambda: _Collector(len(payloads)), sock=near)
        await loop.sock_sendall(far, b"".join(framed(payload) for payload in payloads))
        await collector.done
        transport.close()
        far.close()
        return collector.frames

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        assert runner.run(run()) == payloads
