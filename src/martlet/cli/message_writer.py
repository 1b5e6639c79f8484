"""Prints the messages of what a fetch has brought, up to a count, and says how far it has come."""

from typing import TYPE_CHECKING, BinaryIO, Final

from martlet.cli.message_format import Message, Printer

if TYPE_CHECKING:
    from martlet.client.fetched import Fetched

_BATCH_BYTES_MAX: Final = 268_435_456


class MessageWriter:
    """Writes messages of any partitions, in the order in which they come."""

    def __init__(self, printer: Printer, out: BinaryIO, count: int | None) -> None:
        self._printer = printer
        self._out = out
        self._count = count
        self.printed = 0

    @property
    def is_full(self) -> bool:
        """Whether as many were printed as are wanted."""
        return self._count is not None and self.printed >= self._count

    def write(self, fetched: "Fetched", stop: int | None = None) -> int:
        """Print what lies before `stop`; returns the offset at which reading of the partition goes on."""
        position = fetched.position
        for record in fetched.records(batch_bytes_max=_BATCH_BYTES_MAX):
            if stop is not None and record.offset >= stop:
                return position
            if self.is_full:
                return position
            self._out.write(self._printer(Message(fetched.partition, *record)))
            self.printed += 1
            position = record.offset + 1
        return fetched.next_position

    def flush(self) -> None:
        self._out.flush()
