"""Times of many small events: percentiles, and a histogram of buckets that double. Pure."""

from collections.abc import Sequence
from typing import Any, Final

_PERCENTILES: Final = (50.0, 90.0, 99.0, 99.9)
_BAR_WIDTH: Final = 40


class LatencyHistogram:
    """Keeps every time, which for what one command measures is little."""

    def __init__(self) -> None:
        self._times_ms: list[float] = []

    def add(self, milliseconds: float) -> None:
        self._times_ms.append(milliseconds)

    @property
    def count(self) -> int:
        return len(self._times_ms)

    def percentile(self, percent: float) -> float | None:
        """The smallest time that at least this many percent of all do not exceed; None without any."""
        ordered = sorted(self._times_ms)
        rank = -(-len(ordered) * percent // 100)
        return ordered[max(0, int(rank) - 1)] if ordered else None

    def buckets(self) -> list[tuple[float, int]]:
        """Upper bounds in ms, and how many times are below each but not below the one before."""
        bounds: list[float] = []
        bound = 0.125
        largest = max(self._times_ms, default=0.0)
        while not bounds or bounds[-1] <= largest:
            bounds.append(bound)
            bound *= 2
        counts = [0] * len(bounds)
        for time_ms in self._times_ms:
            counts[next(place for place, upper in enumerate(bounds) if time_ms < upper)] += 1
        first = next((place for place, count in enumerate(counts) if count), 0)
        return list(zip(bounds, counts, strict=True))[first:]

    def to_json(self) -> dict[str, Any]:
        return {
            "count": self.count,
            "percentiles_ms": {f"p{percent:g}": _rounded(self.percentile(percent)) for percent in _PERCENTILES},
            "max_ms": _rounded(max(self._times_ms, default=None)),
            "buckets": [{"below_ms": bound, "count": count} for bound, count in self.buckets()],
        }

    def facts(self) -> dict[str, str]:
        """The percentiles, for people."""
        found = {f"p{percent:g}": self.percentile(percent) for percent in _PERCENTILES}
        found["max"] = max(self._times_ms, default=None)
        return {name: "-" if value is None else f"{value:.2f} ms" for name, value in found.items()}

    def rows(self) -> Sequence[tuple[str, int, str]]:
        """The buckets with a bar each, for people."""
        largest = max((count for _, count in self.buckets()), default=0)
        return [
            (f"< {bound:g} ms", count, "#" * (-(-count * _BAR_WIDTH // largest) if largest else 0))
            for bound, count in self.buckets()
        ]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
