"""The real world is refused to a simulation, and to nothing else in the same process."""

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sim.guard import SimEscape, real_world_refused


def _open_socket() -> None:
    socket.socket().close()


def _start_thread() -> None:
    thread = threading.Thread(target=_nothing)
    thread.start()
    thread.join()


def _nothing() -> None:
    pass


def _sleep() -> None:
    time.sleep(0)


def _write_file() -> None:
    descriptor = os.open(Path(os.devnull).parent.parent / "no-such-file-of-a-simulation" / "x", os.O_WRONLY)
    os.close(descriptor)


ESCAPES = pytest.mark.parametrize("escape", [_open_socket, _start_thread, _sleep, _write_file])


@ESCAPES
def test_a_simulation_does_not_reach_the_real_world(escape: Callable[[], None]) -> None:
    with real_world_refused(), pytest.raises(SimEscape):
        escape()


@ESCAPES
def test_other_threads_and_what_comes_after_a_simulation_are_not_concerned(escape: Callable[[], None]) -> None:
    def reach() -> None:
        with contextlib.suppress(FileNotFoundError):
            escape()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(_nothing).result()
        with real_world_refused():
            pool.submit(reach).result(10)
    reach()
