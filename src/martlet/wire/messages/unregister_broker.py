"""UnregisterBroker (key 64): forget a broker that has left for good.

Version 0, flexible.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class UnregisterBrokerRequest:
    """The broker to forget."""

    broker_id: int = 0


@dataclass(slots=True)
class UnregisterBrokerResponse:
    """Whether it was forgotten."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
