"""Which broker coordinates a group or a transactional id: found when first needed, and again after any failure.

Rule: nothing here decides whether a request may be sent twice; `call` repeats what may be tried again, so it is for
requests that may.
"""

from collections.abc import Awaitable, Callable
from enum import IntEnum
from typing import TypeVar

from martlet.base.errors import ApiError
from martlet.client.answers import check, only
from martlet.client.apis import FIND_COORDINATOR
from martlet.client.cluster import Cluster
from martlet.client.connection import Connection
from martlet.client.errors import ClientError
from martlet.wire.messages.find_coordinator import FindCoordinatorRequest

Result = TypeVar("Result")


class Coordinated(IntEnum):
    """What has a coordinator, by the numbers of FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1

    @property
    def noun(self) -> str:
        """For sentences."""
        return "group" if self is Coordinated.GROUP else "transactional id"


class Coordinators:
    """Remembers who coordinates which key; owns nothing that needs closing."""

    def __init__(self, cluster: Cluster, kind: Coordinated) -> None:
        self._cluster = cluster
        self._kind = kind
        self._broker_ids: dict[str, int] = {}

    def known(self, key: str) -> int:
        """The id of the broker found last; -1 when none is."""
        return self._broker_ids.get(key, -1)

    def forget(self, key: str) -> None:
        """Find it again before the next request."""
        self._broker_ids.pop(key, None)

    async def connection(self, key: str) -> Connection:
        """A connection to the broker that coordinates the key."""
        if key not in self._broker_ids:
            request = FindCoordinatorRequest(key_type=self._kind, coordinator_keys=[key], key=key)
            response = await (await self._cluster.any_connection()).call(FIND_COORDINATOR, request)
            # One key until version 3, several from version 4 on.
            found = only(response.coordinators) if response.coordinators else response
            check(found.error_code, found.error_message, f"the coordinator of {self._kind.noun} {key!r} was not found")
            self._broker_ids[key] = found.node_id
        return await self._cluster.connection(self._broker_ids[key])

    async def call(self, key: str, ask: Callable[[Connection], Awaitable[Result]]) -> Result:
        """Ask the coordinator, until it answers, refuses for good or time is up."""

        async def attempt() -> Result:
            try:
                return await ask(await self.connection(key))
            except (ApiError, ClientError):
                self.forget(key)
                raise

        return await self._cluster.retry(attempt)
