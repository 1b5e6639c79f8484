"""A loopback proxy whose present connections can be frozen: open but silent, as after a lost route or in a hung box."""

import asyncio
from typing import Self

from martlet.stores.etcd_options import EtcdEndpoint


class FreezingProxy:
    """Forwards to one endpoint; an async context manager."""

    def __init__(self, target: EtcdEndpoint) -> None:
        self._target = target
        self._server: asyncio.Server | None = None
        self._pumps: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.accepted = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for pump in self._pumps:
            pump.cancel()
        if self._pumps:
            await asyncio.wait(self._pumps)
        for writer in self._writers:
            writer.transport.abort()
        await self._server.wait_closed()

    @property
    def endpoint(self) -> EtcdEndpoint:
        assert self._server is not None
        return EtcdEndpoint("127.0.0.1", self._server.sockets[0].getsockname()[1])

    def freeze(self) -> None:
        """Forward nothing more on the connections there are; later ones are not affected."""
        for pump in self._pumps:
            pump.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        far_reader, far_writer = await asyncio.open_connection(self._target.host, self._target.port)
        self._writers |= {writer, far_writer}
        for source, sink in ((reader, far_writer), (far_reader, writer)):
            pump = asyncio.create_task(self._pump(source, sink))
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)

    @staticmethod
    async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65_536):
                sink.write(data)
                await sink.drain()
        except OSError:
            pass
        sink.transport.abort()
