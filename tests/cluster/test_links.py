"""The breakable network of the cluster tests: each link keeps its own rules, in every shape of cut."""

import contextlib
import gc
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.cluster.links import CLIENTS, Cut, Links
from tests.stores.etcd_process import free_port

_CHILD = """
import socket, sys
one = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
for line in sys.stdin:
    one.sendall(line.encode())
    print(one.recv(100).decode(), end="", flush=True)
"""


class Echo:
    """Answers every piece with itself and remembers what it heard."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self.heard: list[bytes] = []
        self.ended = 0
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for one in self._sockets:
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                one, _ = self._listening.accept()
            except OSError:
                return
            self._sockets.append(one)
            threading.Thread(target=self._serve, args=(one,), daemon=True).start()

    def _serve(self, one: socket.socket) -> None:
        try:
            while data := one.recv(100):
                self.heard.append(data)
                one.sendall(data)
        except OSError:
            pass
        self.ended += 1


class Workplace:
    """Two servers behind relays, a process that counts as broker 7, and this process as a client."""

    def __init__(self, stack: ExitStack) -> None:
        self._processes: dict[int, int] = {}
        self.links = stack.enter_context(Links(lambda: self._processes))
        self.echo = Echo()
        stack.callback(self.echo.close)
        self.port = free_port()
        self.links.add_broker(1, port=self.port, far_port=self.echo.port)
        self.links.listen(self.port)
        self._stack = stack

    def connect(self) -> socket.socket:
        one = self._stack.enter_context(socket.create_connection(("127.0.0.1", self.port)))
        one.settimeout(5)
        return one

    def broker_seven(self) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, "-c", _CHILD, str(self.port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._stack.enter_context(process)
        self._stack.callback(process.kill)
        self._processes[process.pid] = 7
        return process


@pytest.fixture
def workplace() -> Iterator[Workplace]:
    with ExitStack() as stack:
        yield Workplace(stack)


def ask(one: socket.socket, text: bytes) -> bytes:
    one.sendall(text)
    return one.recv(100)


def hears_nothing(one: socket.socket, seconds: float = 0.3) -> bool:
    one.settimeout(seconds)
    try:
        one.recv(100)
    except TimeoutError:
        return True
    finally:
        one.settimeout(5)
    return False


def wait_until_heard(echo: Echo, text: bytes) -> None:
    deadline = time.monotonic() + 5
    while text not in echo.heard:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_an_open_link_passes_bytes_both_ways(workplace: Workplace) -> None:
    assert ask(workplace.connect(), b"hello") == b"hello"


def test_a_silent_link_holds_everything_until_it_is_healed(workplace: Workplace) -> None:
    one = workplace.connect()
    assert ask(one, b"before") == b"before"
    workplace.links.cut(CLIENTS, 1, Cut.SILENT)
    one.sendall(b"meanwhile")
    assert hears_nothing(one)
    assert workplace.echo.heard == [b"before"]
    workplace.links.heal(CLIENTS, 1)
    assert one.recv(100) == b"meanwhile"


def test_a_silent_link_takes_connections_and_says_nothing(workplace: Workplace) -> None:
    workplace.links.cut(CLIENTS, 1, Cut.SILENT)
    one = workplace.connect()
    one.sendall(b"late")
    assert hears_nothing(one)
    workplace.links.heal(CLIENTS, 1)
    assert one.recv(100) == b"late"


def test_answers_can_be_lost_while_requests_arrive(workplace: Workplace) -> None:
    one = workplace.connect()
    assert ask(one, b"before") == b"before"
    workplace.links.cut(CLIENTS, 1, Cut.ANSWERS)
    one.sendall(b"done unseen")
    wait_until_heard(workplace.echo, b"done unseen")
    assert hears_nothing(one)
    workplace.links.heal(CLIENTS, 1)
    assert one.recv(100) == b"done unseen"


def test_requests_can_be_lost_while_answers_arrive(workplace: Workplace) -> None:
    one = workplace.connect()
    assert ask(one, b"before") == b"before"
    workplace.links.cut(CLIENTS, 1, Cut.REQUESTS)
    one.sendall(b"unheard")
    assert hears_nothing(one)
    assert workplace.echo.heard == [b"before"]


def test_the_end_of_a_connection_does_not_pass_a_cut_link(workplace: Workplace) -> None:
    one = workplace.connect()
    assert ask(one, b"before") == b"before"
    workplace.links.cut(CLIENTS, 1, Cut.SILENT)
    one.close()
    time.sleep(0.3)
    assert workplace.echo.ended == 0
    workplace.links.heal(CLIENTS, 1)
    deadline = time.monotonic() + 5
    while workplace.echo.ended == 0:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_healing_without_delivery_resets_what_was_held(workplace: Workplace) -> None:
    one = workplace.connect()
    assert ask(one, b"before") == b"before"
    workplace.links.cut(CLIENTS, 1, Cut.REQUESTS)
    one.sendall(b"never")
    time.sleep(0.2)
    workplace.links.heal(CLIENTS, 1, deliver=False)
    with pytest.raises(ConnectionResetError):
        one.recv(100)
    assert ask(workplace.connect(), b"after") == b"after"
    assert b"never" not in workplace.echo.heard


def test_a_closed_link_resets_connections_and_refuses_new_ones(workplace: Workplace) -> None:
    one = workplace.connect()
    assert ask(one, b"before") == b"before"
    workplace.links.cut(CLIENTS, 1, Cut.CLOSED)
    with pytest.raises(ConnectionResetError):
        one.recv(100)
    assert workplace.connect().recv(100) == b""
    workplace.links.heal(CLIENTS, 1)
    assert ask(workplace.connect(), b"after") == b"after"


def test_a_delayed_link_brings_everything_later(workplace: Workplace) -> None:
    one = workplace.connect()
    workplace.links.delay(CLIENTS, 1, 0.2)
    started = time.monotonic()
    assert ask(one, b"slow") == b"slow"
    assert time.monotonic() - started >= 0.4


def test_a_relay_of_a_broker_that_is_down_refuses_connections(workplace: Workplace) -> None:
    workplace.links.refuse(workplace.port)
    with pytest.raises(ConnectionRefusedError):
        workplace.connect()
    workplace.links.listen(workplace.port)
    assert ask(workplace.connect(), b"again") == b"again"


def test_links_of_different_sources_to_one_target_are_independent(workplace: Workplace) -> None:
    seven = workplace.broker_seven()
    assert seven.stdin is not None
    assert seven.stdout is not None
    seven.stdin.write("from seven\n")
    seven.stdin.flush()
    assert seven.stdout.readline() == "from seven\n"
    one = workplace.connect()
    workplace.links.cut(7, 1, Cut.SILENT)
    assert ask(one, b"a client is heard") == b"a client is heard"
    seven.stdin.write("nobody hears\n")
    seven.stdin.flush()
    time.sleep(0.2)
    assert b"nobody hears\n" not in workplace.echo.heard
    workplace.links.cut(CLIENTS, 1, Cut.CLOSED)
    workplace.links.heal(7, 1)
    assert seven.stdout.readline() == "nobody hears\n"


def test_a_relay_leaves_nothing_open_whatever_its_connections_were_doing() -> None:
    with ExitStack() as stack, warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        workplace = Workplace(stack)
        stuck = workplace.connect()
        workplace.links.cut(CLIENTS, 1, Cut.ANSWERS)
        stuck.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                stuck.send(b"x" * 65_536)
        workplace.echo.close()
        workplace.links.cut(CLIENTS, 1, Cut.SILENT)
        workplace.connect()
        workplace.links.heal(CLIENTS, 1)
        workplace.connect()
    gc.collect()
