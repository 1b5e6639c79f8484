"""How to read a whole partition: the fetch requests one after the other, and the answer each must get.

Made by reading it once, untimed. Every batch's checksum and the order of offsets are checked on the way, so that what
is timed afterwards is known to be right and needs no look.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.processes import BrokerProcess, ProcessFailed
from bench.wire_client import FETCH_VERSION, WireClient, fetch_body, fetch_frame
from martlet.wire.api_keys import ApiKey
from martlet.wire.batch import crc_matches, iterate_batches
from martlet.wire.fetch import parse_fetch_response
from martlet.wire.headers import response_prefix

_ANSWER_PREFIX_BYTES = len(response_prefix(0, ApiKey.FETCH, FETCH_VERSION, 0))


@dataclass(frozen=True)
class FetchPlan:
    """The requests in their file, and the file that tells the bare loop how to answer them."""

    path: Path
    requests_path: Path
    request_sizes: list[int]
    answer_sizes: list[int]

    def load(self, port: int, total_bytes: int, in_flight: int, seconds_max: float) -> dict[str, Any]:
        """What the load client needs to read about `total_bytes`."""
        mean_bytes = sum(self.answer_sizes) / len(self.answer_sizes)
        return {
            "role": "fetch",
            "port": port,
            "frames_path": str(self.requests_path),
            "frame_sizes": self.request_sizes,
            "answer_sizes": self.answer_sizes,
            "warmup_requests": max(8, len(self.request_sizes) // 4),
            "requests": max(8, round(total_bytes / mean_bytes)),
            "in_flight": in_flight,
            "seconds_max": seconds_max,
        }


def make_plan(process: BrokerProcess, topic: str, path: Path, max_bytes: int) -> FetchPlan:
    """Read partition 0 from its beginning to its end."""
    frames: list[bytes] = []
    answer_sizes: list[int] = []
    pieces: list[tuple[int, int, int]] = []
    with process.client() as client:
        info = client.topic(topic)
        offset = position = 0
        while True:
            body = client.call(
                ApiKey.FETCH, FETCH_VERSION, fetch_body(info, 0, offset, max_bytes=max_bytes, max_wait_ms=0)
            )
            result = parse_fetch_response(body, FETCH_VERSION).topics[0].partitions[0]
            if result.error_code:
                raise ProcessFailed(f"fetch at {offset}: error {result.error_code}")
            size = len(result.records)
            if not size:
                break
            frames.append(fetch_frame(info, 0, offset, max_bytes=max_bytes))
            answer_sizes.append(_ANSWER_PREFIX_BYTES + len(body))
            pieces.append((answer_sizes[-1] - size, position, size))
            position += size
            offset = _check_batches(memoryview(result.records), offset)
        _check_complete(client, topic, offset)
    segment = _segment_file(process.data, f"{topic}-0", position)
    path.write_text(json.dumps({"file": str(segment), "pieces": pieces}), "utf-8")
    requests_path = path.with_suffix(".requests")
    requests_path.write_bytes(b"".join(frames))
    return FetchPlan(path, requests_path, list(map(len, frames)), answer_sizes)


def _check_batches(records: memoryview, offset: int) -> int:
    """The offset behind the last batch."""
    for position, header in iterate_batches(records):
        if header.base_offset != offset or not crc_matches(records, position, header):
            raise ProcessFailed(f"a wrong batch at offset {offset}")
        offset = header.next_offset
    return offset


def _check_complete(client: WireClient, topic: str, offset: int) -> None:
    end = client.fetch(client.topic(topic), 0, offset, max_bytes=1).high_watermark
    if end != offset or not offset:
        raise ProcessFailed(f"{topic} ends at {end}, but reading stopped at {offset}")


def _segment_file(data: Path, partition: str, size: int) -> Path:
    """The file that holds the partition's batches; there must be one only, or positions would be wrong."""
    found = sorted(data.glob(f"**/{partition}/*.log"))
    if len(found) != 1 or found[0].stat().st_size < size:
        raise ProcessFailed(f"expected one segment with {size} bytes, found {[str(path) for path in found]}")
    return found[0]
