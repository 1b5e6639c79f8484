"""ListTransactions (key 66): the transactional ids that a broker coordinates.

Versions 0–2, flexible. v1 adds a filter by age, v2 one by a regular expression.
"""

from dataclasses import field

from martlet.wire.message import message


@message
class ListTransactionsRequest:
    """The filters; an empty one, or -1, lets everything pass."""

    state_filters: list[str] = field(default_factory=list)
    producer_id_filters: list[int] = field(default_factory=list)
    duration_filter: int = -1  # v1+, milliseconds
    transactional_id_pattern: str | None = None  # v2+


@message
class TransactionState:
    """One id."""

    transactional_id: str = ""
    producer_id: int = 0
    transaction_state: str = ""


@message
class ListTransactionsResponse:
    """The ids, and the states asked for that do not exist."""

    throttle_time_ms: int = 0
    error_code: int = 0
    unknown_state_filters: list[str] = field(default_factory=list)
    transaction_states: list[TransactionState] = field(default_factory=list)
