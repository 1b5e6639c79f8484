"""What every part of the client can be given: names, timeouts and limits. Values only."""

from dataclasses import dataclass, field

from martlet.client.security import ClientSecurity


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """Settings of the conversation itself; producer and fetcher have more of their own."""

    client_id: str = "martlet"
    security: ClientSecurity = field(default_factory=ClientSecurity)
    connect_timeout_ms: int = 5_000
    request_timeout_ms: int = 30_000
    metadata_max_age_ms: int = 300_000
    metadata_timeout_ms: int = 5_000
    """How long one broker may take to describe the cluster before another one is asked."""
    retry_timeout_ms: int = 30_000
    """How long a retriable failure is tried again before it reaches the caller."""
    retry_backoff_ms: int = 50
    retry_backoff_max_ms: int = 1_000
    unknown_topic_wait_ms: int = 1_000
    """How long a topic may be unknown to the broker before that is believed."""
    response_bytes_max: int = 268_435_456
