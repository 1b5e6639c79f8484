"""The part of asyncio's event loop interface that a simulation does not have: every call raises, naming itself.

File descriptors, signals, child processes, raw sockets and TLS are the real world; code that needs them needs a port.
"""

import asyncio
from typing import Any

from sim.guard import SimEscape


def _refuse(name: str) -> Any:
    def refused(self: "RefusingLoop", *args: object, **options: object) -> Any:
        raise SimEscape(f"{self!r}.{name} was called, which would reach for the real world")

    return refused


class RefusingLoop(asyncio.AbstractEventLoop):
    """Base of the simulated loop."""

    add_reader = _refuse("add_reader")
    remove_reader = _refuse("remove_reader")
    add_writer = _refuse("add_writer")
    remove_writer = _refuse("remove_writer")
    add_signal_handler = _refuse("add_signal_handler")
    remove_signal_handler = _refuse("remove_signal_handler")
    sock_recv = _refuse("sock_recv")
    sock_recv_into = _refuse("sock_recv_into")
    sock_recvfrom = _refuse("sock_recvfrom")
    sock_recvfrom_into = _refuse("sock_recvfrom_into")
    sock_sendall = _refuse("sock_sendall")
    sock_sendto = _refuse("sock_sendto")
    sock_connect = _refuse("sock_connect")
    sock_accept = _refuse("sock_accept")
    sock_sendfile = _refuse("sock_sendfile")
    sendfile = _refuse("sendfile")
    start_tls = _refuse("start_tls")
    getnameinfo = _refuse("getnameinfo")
    connect_accepted_socket = _refuse("connect_accepted_socket")
    connect_read_pipe = _refuse("connect_read_pipe")
    connect_write_pipe = _refuse("connect_write_pipe")
    create_datagram_endpoint = _refuse("create_datagram_endpoint")
    create_unix_connection = _refuse("create_unix_connection")
    create_unix_server = _refuse("create_unix_server")
    subprocess_exec = _refuse("subprocess_exec")
    subprocess_shell = _refuse("subprocess_shell")
