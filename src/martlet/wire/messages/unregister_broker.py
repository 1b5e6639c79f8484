"""UnregisterBroker (key 64): forget a broker that has left for good.

Version 0, flexible.
"""

from martlet.wire.message import message


@message
class UnregisterBrokerRequest:
    """The broker to forget."""

    broker_id: int = 0


@message
class UnregisterBrokerResponse:
    """Whether it was forgotten."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
