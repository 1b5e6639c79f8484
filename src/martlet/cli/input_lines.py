"""Lines from standard input or a file, without ever blocking the event loop on slow input.

Pipes and terminals are read when the loop says that there is something; regular files, which the loop cannot watch and
which never keep anybody waiting, are read directly. No thread is involved: a thread that waits for a key press would
keep the program from ending on Ctrl-C.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from io import UnsupportedOperation
from typing import BinaryIO, Final

_CHUNK_BYTES: Final = 65_536
LINE_BYTES_MAX: Final = 67_108_864


async def read_lines(stream: BinaryIO) -> AsyncIterator[bytes]:
    """Every line without its line feed, the last one even if it had none. Raises ValueError for an absurd one."""
    rest = b""
    while chunk := await _read_chunk(stream):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line
        if len(rest) > LINE_BYTES_MAX:
            raise ValueError(f"a line of more than {LINE_BYTES_MAX} bytes; are these lines of text?")
    if rest:
        yield rest


async def _read_chunk(stream: BinaryIO) -> bytes:
    try:
        descriptor = stream.fileno()
        await _wait_readable(descriptor)
    except (UnsupportedOperation, PermissionError):
        return stream.read(_CHUNK_BYTES)
    return os.read(descriptor, _CHUNK_BYTES)


async def _wait_readable(descriptor: int) -> None:
    """Raises PermissionError for what the loop cannot watch: regular files and the like."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(descriptor, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(descriptor)
