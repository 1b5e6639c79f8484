"""How far the brokers of the cluster have followed its metadata, compared with what the store holds now.

A broker names the revision its image has reached in every ApiVersions answer, as the epoch of the features; others are
asked for it there. The store is asked first, and only what it held then can be missing. This broker catches up with it
before the others are asked: in an etcd that has other users too, that is what makes every watch pass their revisions.

Proved by: tests/sim/test_metadata_reach.py
"""

import asyncio
from collections.abc import Mapping
from typing import Final

from martlet import __version__
from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import BrokerId
from martlet.broker.ground.peer_connection import Connect
from martlet.broker.membership.metadata_changes import MetadataChanges
from martlet.client.apis import API_VERSIONS
from martlet.client.errors import ClientError
from martlet.cluster.records import BrokerRecord, Endpoint
from martlet.wire.messages.api_versions import ApiVersionsRequest

UNKNOWN: Final = -1

_SECONDS_MAX: Final = 2.0
"""A store or a broker that is well answers in far less."""


async def ask_reach(
    changes: MetadataChanges, me: BrokerId, brokers: Mapping[BrokerId, BrokerRecord], connect: Connect
) -> tuple[int, dict[BrokerId, int]]:
    """The store's revision, and what each of these brokers has of it; raises ApiError when the store is away."""
    try:
        async with asyncio.timeout(_SECONDS_MAX):
            revision = await changes.catch_up()
    except TimeoutError:
        detail = f"broker {me} has not caught up with the metadata store in {_SECONDS_MAX:.0f} s"
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT, detail) from None
    reached = await asyncio.gather(
        *(_own(changes) if number == me else _of_other(record, connect) for number, record in brokers.items())
    )
    return revision, {number: min(found, revision) for number, found in zip(brokers, reached, strict=True)}


async def _own(changes: MetadataChanges) -> int:
    return changes.image.revision


async def _of_other(record: BrokerRecord, connect: Connect) -> int:
    endpoint = record.broker_endpoint
    if endpoint is None:
        return UNKNOWN
    try:
        async with asyncio.timeout(_SECONDS_MAX):
            return await _ask_other(endpoint, connect)
    except (TimeoutError, ClientError, ApiError):
        return UNKNOWN


async def _ask_other(endpoint: Endpoint, connect: Connect) -> int:
    connection = await connect(endpoint)
    try:
        answer = await connection.call(API_VERSIONS, ApiVersionsRequest("martlet", __version__))
        return answer.finalized_features_epoch
    finally:
        connection.close()
