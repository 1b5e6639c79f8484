"""Which process holds the other end of a loopback connection, asked of the kernel.

A broker tells all others one address, so a relay at that address must find out by itself who connects to it. Linux
lists every TCP socket with its inode, and every process its open files: no right is needed beyond owning the process.

Proved by: tests/cluster/test_links.py
"""

import contextlib
import os
import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeAlias

Address: TypeAlias = tuple[str, int]
_SOCKETS: Final = Path("/proc/net/tcp")


def owner_of(end: Address, other_end: Address, processes: Mapping[int, int]) -> int | None:
    """The key of the process (key by process id) whose socket is bound to `end` and connected to `other_end`."""
    inode = _inode_of(end, other_end)
    if inode is None:
        return None
    wanted = f"socket:[{inode}]"
    for process_id, key in processes.items():
        # It may end while we look.
        with contextlib.suppress(OSError):
            files = f"/proc/{process_id}/fd"
            for name in os.listdir(files):
                with contextlib.suppress(OSError):
                    if os.readlink(f"{files}/{name}") == wanted:
                        return key
    return None


def _inode_of(end: Address, other_end: Address) -> str | None:
    wanted = [_in_kernel_form(end), _in_kernel_form(other_end)]
    for line in _SOCKETS.read_text("ascii").splitlines()[1:]:
        fields = line.split()
        if fields[1:3] == wanted:
            return fields[9]
    return None


def _in_kernel_form(address: Address) -> str:
    host, port = address
    (number,) = struct.unpack("=I", socket.inet_aton(host))
    return f"{number:08X}:{port:04X}"
