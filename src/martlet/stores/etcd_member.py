"""One member of the etcd cluster: its idle connections, and the check of it before it is used.

Rules: a member is checked (is it etcd, and of a version that can be trusted?) on the first connection to it, and
again on the first one after any of its connections broke: it may be another program by then. Only a connection that
ended its exchange well is used again.

Proved by: tests/unit/stores/test_etcd_gateway.py, tests/stores/test_etcd_security.py
"""

import re
import ssl
from http import HTTPStatus
from typing import Final

from martlet.cluster.store import StoreRefused
from martlet.stores.etcd_http import (
    AnswerCut,
    AnswerLost,
    CannotConnect,
    CertificateRefused,
    HttpConnection,
    NotHttp,
    WrongPeer,
)
from martlet.stores.etcd_json import BadAnswer, unpack
from martlet.stores.etcd_options import EtcdEndpoint

OLDEST_VERSION: Final = (3, 4, 0)
DAMAGING_VERSIONS: Final = ((3, 5, 0), (3, 5, 2))

_IDLE_CONNECTIONS_MAX: Final = 8


class EtcdMember:
    """Connections to one endpoint; used from one event loop."""

    def __init__(self, endpoint: EtcdEndpoint, tls: ssl.SSLContext | None, connect_seconds: float) -> None:
        self.endpoint = endpoint
        self._tls = tls
        self._connect_seconds = connect_seconds
        self._idle: list[HttpConnection] = []
        self._is_known = False
        self._is_closed = False

    async def take(self) -> HttpConnection:
        """A connection for one exchange: an idle one, or a new one. `CannotConnect` and `StoreRefused` say why not."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable:
                return connection
            await self.drop(connection)
        try:
            connection = await HttpConnection.open(self.endpoint, self._tls, self._connect_seconds)
        except WrongPeer as error:
            raise StoreRefused(f"etcd at {self.endpoint}: {error}") from error
        if not self._is_known:
            try:
                await self._look_at(connection)
            except BaseException:
                await connection.close()
                raise
            self._is_known = True
        return connection

    async def give_back(self, connection: HttpConnection) -> None:
        """End the use of a connection that `take` gave."""
        if not connection.is_usable:
            await self.drop(connection)
        elif self._is_closed or len(self._idle) >= _IDLE_CONNECTIONS_MAX:
            await connection.close()
        else:
            self._idle.append(connection)

    async def drop(self, connection: HttpConnection) -> None:
        """A connection broke: the idle ones have likely too, and another program may answer there next."""
        self._is_known = False
        await connection.close()
        await self._close_idle()

    async def close(self) -> None:
        self._is_closed = True
        await self._close_idle()

    async def _close_idle(self) -> None:
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.close()

    async def _look_at(self, connection: HttpConnection) -> None:
        try:
            answer = await connection.exchange("GET", "/version", b"", [], self._connect_seconds)
        except NotHttp as error:
            raise StoreRefused(
                f"{self.endpoint} is not etcd's HTTP port: {error}; name a client address (--listen-client-urls, "
                "or --listen-client-http-urls where that is set)"
            ) from error
        except CertificateRefused as error:
            raise StoreRefused(f"etcd at {self.endpoint}: {error}") from error
        except AnswerCut as error:
            hint = "; does this address speak TLS?" if self._tls is None else ""
            raise CannotConnect(f"{error}{hint}") from error
        except AnswerLost as error:
            raise CannotConnect(str(error)) from error
        if answer.status == HTTPStatus.BAD_REQUEST and b"HTTPS server" in answer.body:
            raise StoreRefused(f"etcd at {self.endpoint} speaks TLS; give the broker the authority's certificate")
        check_version(self.endpoint, answer.body if answer.status == HTTPStatus.OK else b"")


def check_version(endpoint: object, body: bytes) -> None:
    """Refuse what is not etcd, or an etcd that cannot be relied on."""
    try:
        text = str(unpack(body)["etcdserver"])
        found = re.match(r"(\d+)\.(\d+)\.(\d+)", text)
    except (BadAnswer, KeyError):
        found = None
    if found is None:
        raise StoreRefused(f"{endpoint} answers HTTP but is not etcd; name the client address of an etcd")
    version = (int(found[1]), int(found[2]), int(found[3]))
    if version < OLDEST_VERSION:
        raise StoreRefused(f"etcd at {endpoint} has version {text}; Martlet needs 3.4 or newer")
    if DAMAGING_VERSIONS[0] <= version <= DAMAGING_VERSIONS[1]:
        raise StoreRefused(
            f"etcd at {endpoint} has version {text}; 3.5.0 to 3.5.2 can lose or contradict committed data when a "
            "member is killed: upgrade to 3.5.28 or newer"
        )
