"""Shuts a broker to its clients while its cluster does not count on it, and opens it again when it is back.

Clients stay with a broker that answers, even if every answer asks them to try again: librdkafka asks whichever broker
it is connected to for producer ids and coordinators, others keep the coordinator or the leader they once had. All of
them turn to another broker at once when a connection ends or is refused. So a broker that may not act ends its
connections and listens no more, until it may act again.

Rules: a broker that knew no other stays open, because there is nowhere to go. A lease that is late for a moment
sends no client away: the broker must be found lost several times in a row. Followers are sent away with the clients: a
leader that may not act tells them nothing, and they try again within a second. While the door is shut the ports are
refused, as on a machine where no broker runs; the sockets that took the addresses at the start hold them meanwhile.

Proved by: tests/unit/broker/serving/test_door.py, tests/cluster/test_lost_cluster.py; measured by `./dev bench lost`
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from martlet.broker.serving.server import BoundListener, KafkaServer

logger = logging.getLogger(__name__)

_CHECK_SECONDS: Final = 0.25
_CHECKS: Final = 3
"""Checks in a row that must find the broker lost."""


class Door:
    """Between `start` and `aclose` it says when the server listens."""

    def __init__(
        self,
        server: KafkaServer,
        bind: Callable[[], Iterable[BoundListener]],
        is_lost: Callable[[], bool],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """`bind` gives other sockets at the broker's addresses; `is_lost`: clients are better off elsewhere."""
        self._server = server
        self._bind = bind
        self._is_lost = is_lost
        self._on_failure = on_failure
        self._lost_checks = 0
        self._is_open = False
        self._is_stuck = False
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Let clients in, and watch the door from now on."""
        await self._open()
        self._task = asyncio.create_task(self._watch(), name="martlet-door")
        self._task.add_done_callback(self._ended)

    async def aclose(self) -> None:
        """Leave the door as it is."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_CHECK_SECONDS)
            self._lost_checks = self._lost_checks + 1 if self._is_lost() else 0
            if self._is_open and self._lost_checks >= _CHECKS:
                self._shut()
            elif not self._is_open and not self._lost_checks:
                await self._open_again()

    def _shut(self) -> None:
        self._is_open = False
        count = self._server.shut()
        logger.warning(
            "this broker has lost its cluster: %d connections are closed and no others taken, so that clients turn to "
            "other brokers",
            count,
        )

    async def _open_again(self) -> None:
        try:
            await self._open()
        except OSError as error:
            if not self._is_stuck:
                self._is_stuck = True
                logger.error("this broker is back in its cluster, but takes no clients: %s; trying again", error)
        else:
            self._is_stuck = False
            logger.warning("this broker is back in its cluster: clients are welcome again")

    async def _open(self) -> None:
        await self._server.listen(self._bind())
        self._is_open = True

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._on_failure(error)
