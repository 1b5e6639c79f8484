"""How far a pipeline is behind its topics now: asked from the brokers, by the rules of `martlet group lag`.

Spark's own report tells where the topics ended when a batch began; between two batches, or in a long one, that is
old. Here the brokers are asked, with the positions that Spark reports, so both commands show the same.
"""

import asyncio
from collections.abc import Mapping
from typing import Final, NamedTuple

from martlet.base.addresses import parse_bootstrap
from martlet.base.clock import SystemClock
from martlet.base.errors import MartletError
from martlet.base.ids import TopicPartition
from martlet.client.cluster import Cluster
from martlet.client.groups import CommittedOffset
from martlet.client.lag import partition_lags
from martlet.client.options import ClientOptions

_PATIENCE_MS: Final = 2_000


class Lag(NamedTuple):
    """Messages not processed yet, and the age of the oldest of them; None when no broker could say."""

    messages: int | None = None
    seconds: float | None = None


def probe_lag(bootstrap: str, positions: Mapping[TopicPartition, int]) -> Lag:
    """The lag of these positions; unknown when the brokers do not answer soon."""
    if not positions:
        return Lag()
    try:
        return asyncio.run(_ask(bootstrap, positions))
    except (MartletError, OSError, TimeoutError):
        return Lag()


async def _ask(bootstrap: str, positions: Mapping[TopicPartition, int]) -> Lag:
    options = ClientOptions(
        client_id="martlet-pipeline",
        connect_timeout_ms=_PATIENCE_MS,
        request_timeout_ms=_PATIENCE_MS,
        retry_timeout_ms=_PATIENCE_MS,
        unknown_topic_wait_ms=0,
    )
    read = {partition: CommittedOffset(offset) for partition, offset in positions.items()}
    async with asyncio.timeout(2 * _PATIENCE_MS / 1000), Cluster(parse_bootstrap(bootstrap), options) as cluster:
        lags = await partition_lags(cluster, read, (), SystemClock().now_ms())
    behind = [lag.messages for lag in lags if lag.messages is not None]
    ages = [lag.age_ms for lag in lags if lag.age_ms is not None]
    return Lag(sum(behind) if behind else None, max(ages) / 1000 if ages else None)
