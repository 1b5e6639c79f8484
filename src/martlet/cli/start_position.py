"""Where reading begins and ends: the words of `--from` and `--until`, and the offsets they mean at this moment."""

import contextlib
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import TopicPartition

if TYPE_CHECKING:
    from martlet.client.cluster import Cluster

ALLOWED: Final = "earliest, latest, -N (the last N of each partition), @TIME, or an offset"
TIMES: Final = "@2026-11-01T08:00, @1793520000000 (ms since 1970), or @-15m (s, m, h or d ago)"

_UNITS_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_AGO: Final = re.compile(r"-(\d+)([smhd])")


class StartKind(Enum):
    """What the number of a start means."""

    EARLIEST = "earliest"
    LATEST = "latest"
    LAST = "last"
    TIME = "time"
    OFFSET = "offset"


class Start(NamedTuple):
    """A parsed `--from`."""

    kind: StartKind
    number: int = 0


def parse_start(text: str, now_ms: int) -> Start:
    """Read a `--from`; raises ValueError naming what is allowed."""
    if text in ("earliest", "beginning"):
        return Start(StartKind.EARLIEST)
    if text in ("latest", "end"):
        return Start(StartKind.LATEST)
    if text.startswith("@"):
        return Start(StartKind.TIME, _parse_time(text[1:], now_ms))
    if re.fullmatch(r"-\d+", text, re.ASCII):
        return Start(StartKind.LAST, int(text[1:]))
    if re.fullmatch(r"\d+", text, re.ASCII):
        return Start(StartKind.OFFSET, int(text))
    raise ValueError(f"{text!r} is not a valid start; allowed are {ALLOWED}")


def _parse_time(text: str, now_ms: int) -> int:
    ago = _AGO.fullmatch(text)
    if ago:
        return max(0, now_ms - int(ago.group(1)) * _UNITS_MS[ago.group(2)])
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        # A time without a zone is the user's own, as in every other tool.
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"'@{text}' is not a valid time; allowed are {TIMES}") from None


def parse_end(text: str, now_ms: int) -> Start:
    """Read an `--until`; raises ValueError naming what is allowed."""
    with contextlib.suppress(ValueError):
        end = parse_start(text, now_ms)
        if end.kind in (StartKind.LATEST, StartKind.TIME, StartKind.OFFSET):
            return end
    raise ValueError(f"{text!r} is not an end; allowed are latest, an offset, or a time: {TIMES}")


async def resolve_end(
    cluster: "Cluster", end: Start, held: Mapping[TopicPartition, range]
) -> dict[TopicPartition, int]:
    """For each partition the offset to stop before: never after where it ends now."""
    from martlet.client.offsets import list_offsets

    if end.kind is StartKind.TIME:
        by_time = await list_offsets(cluster, dict.fromkeys(held, end.number))
        return {p: held[p].stop if by_time[p].offset < 0 else by_time[p].offset for p in held}
    if end.kind is StartKind.OFFSET:
        return {p: min(end.number, offsets.stop) for p, offsets in held.items()}
    return {p: offsets.stop for p, offsets in held.items()}


async def resolve_start(
    cluster: "Cluster", start: Start, partitions: Sequence[TopicPartition]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, range]]:
    """For each partition the offset to begin at, and the offsets it holds now."""
    from martlet.client.offsets import EARLIEST, LATEST, list_offsets

    first = await list_offsets(cluster, dict.fromkeys(partitions, EARLIEST))
    end = await list_offsets(cluster, dict.fromkeys(partitions, LATEST), read_committed=True)
    held = {partition: range(first[partition].offset, end[partition].offset) for partition in partitions}
    if start.kind is StartKind.TIME:
        by_time = await list_offsets(cluster, dict.fromkeys(partitions, start.number))
        found = {partition: at.offset for partition, at in by_time.items()}
        return {p: held[p].stop if found[p] < 0 else found[p] for p in partitions}, held
    return {partition: _position(start, partition, held[partition]) for partition in partitions}, held


def _position(start: Start, partition: TopicPartition, held: range) -> int:
    if start.kind is StartKind.EARLIEST:
        return held.start
    if start.kind is StartKind.LATEST:
        return held.stop
    if start.kind is StartKind.LAST:
        return max(held.start, held.stop - start.number)
    if start.number > held.stop:
        raise ApiError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{partition} has no offset {start.number} yet; it holds {held.start} up to but not including {held.stop}",
        )
    return max(held.start, start.number)
