"""One thing to go wrong in a simulated cluster, and what a kind of fault is."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from martlet.base.ids import BrokerId
from sim.link import LinkQuality


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing to go wrong."""

    at_ms: int
    kind: str
    length_ms: int
    draw: int
    """Decides what is left to decide when it strikes."""


Strike: TypeAlias = Callable[[Fault, BrokerId], bool | None]
"""Carries a fault out on a victim; False says that it came to nothing."""

FaultKind: TypeAlias = tuple[int, Strike]
"""How often it is drawn, compared with the others, and what it does."""


def restore(quality: LinkQuality, usual: LinkQuality) -> None:
    """A link is as fast again as the others are."""
    quality.latency_ns_min, quality.latency_ns_max = usual.latency_ns_min, usual.latency_ns_max
