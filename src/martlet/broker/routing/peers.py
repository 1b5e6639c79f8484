"""Connections to the other brokers for requests that a broker sends of its own: one to each, opened when first needed.

A connection is to one process: when a broker registers again, the old one is dropped. Nothing is tried twice here; a
caller hears that a broker could not be reached and decides itself.

Proved by: tests/unit/broker/coordinators/test_transaction_coordinator.py, tests/cluster/test_transactions.py
"""

import asyncio
from typing import TypeVar

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import BrokerId, Incarnation
from martlet.broker.ground.peer_connection import Connect, connect_to_broker
from martlet.client.apis import Api
from martlet.client.connection import Connection
from martlet.client.errors import ClientError
from martlet.cluster.image import MetadataImage

Request = TypeVar("Request")
Response = TypeVar("Response")


class _Peer:
    """One broker; its lock is held while a connection is being opened."""

    __slots__ = ("connection", "incarnation", "opening")

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.incarnation: Incarnation | None = None
        self.opening = asyncio.Lock()


class Peers:
    """Lives on the broker's event loop until `aclose`."""

    def __init__(self, image: MetadataImage, connect: Connect = connect_to_broker) -> None:
        self._image = image
        self._connect = connect
        self._peers: dict[BrokerId, _Peer] = {}

    async def call(self, broker: BrokerId, api: Api[Request, Response], request: Request) -> Response:
        """The broker's answer; raises COORDINATOR_NOT_AVAILABLE when it cannot be had."""
        try:
            connection = await self._connected(broker)
            return await connection.call(api, request)
        except ClientError as error:
            detail = f"broker {broker} cannot be reached: {error}"
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, detail) from error

    async def aclose(self) -> None:
        """Hang up on all."""
        peers, self._peers = self._peers, {}
        for peer in peers.values():
            if peer.connection is not None:
                await peer.connection.aclose()

    async def _connected(self, broker: BrokerId) -> Connection:
        record = self._image.broker(broker)
        endpoint = record.broker_endpoint if record is not None else None
        if record is None or endpoint is None:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"broker {broker} is not registered")
        peer = self._peers.setdefault(broker, _Peer())
        async with peer.opening:
            connection = peer.connection
            if connection is not None and connection.is_open and peer.incarnation == record.incarnation:
                return connection
            if connection is not None:
                connection.close()
                peer.connection = None
            peer.connection = connection = await self._connect(endpoint)
            peer.incarnation = record.incarnation
            return connection
