"""How a planner, a reading task or a writing task reaches the cluster. Values only, so that they can be pickled."""

from dataclasses import dataclass

from martlet.client.options import ClientOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """Where the brokers are and how patient to be with them."""

    bootstrap: str
    client_id: str = "martlet-spark"
    request_timeout_ms: int = 30_000
    retry_timeout_ms: int = 60_000

    def client_options(self) -> ClientOptions:
        return ClientOptions(
            client_id=self.client_id,
            request_timeout_ms=self.request_timeout_ms,
            retry_timeout_ms=self.retry_timeout_ms,
        )
