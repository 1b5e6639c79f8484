"""A supervised child: what is passed on of its words, when it is started again and when not."""

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from martlet.cli import supervised
from martlet.cli.supervised import Child, ChildNotStarted


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervised, "_PAUSE_SECONDS", 0.01)


@contextmanager
def _ended(child: Child) -> Iterator[Child]:
    try:
        yield child
    finally:
        child.kill()


def _child(code: str, label: str = "broker 1", width: int = 0) -> Child:
    return Child(label, lambda: [sys.executable, "-c", code], lambda line: line == "up", width=width)


async def test_its_words_are_passed_on_with_its_label(capfd: pytest.CaptureFixture[str]) -> None:
    code = "import sys; print('up', flush=True); sys.stderr.write('one\\ntwo\\x1b[2J\\nno end')"
    with _ended(_child(code, width=9)) as child:
        assert await child.run() == 0
    lines = capfd.readouterr().err.splitlines()
    assert lines[:3] == ["broker 1  | one", "broker 1  | two\\x1b[2J", "broker 1  | no end"]
    assert lines[3] == "broker 1  | stopped; it is not started again"


async def test_a_line_without_an_end_in_sight_is_cut(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervised, "_LINE_BYTES_MAX", 1_000)
    with _ended(_child("import sys; print('up', flush=True); sys.stderr.write('x' * 200_000)")) as child:
        assert await child.run() == 0
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) > 2
    assert sum(line.count("x") for line in lines[:-1]) == 200_000


async def test_one_that_never_came_up_is_not_tried_again() -> None:
    child = _child("import sys; sys.exit(5)")
    with pytest.raises(ChildNotStarted, match="broker 1 could not be started") as caught:
        await child.run()
    assert caught.value.exit_code == 5


async def test_one_that_crashes_is_started_again_until_it_is_stopped(capfd: pytest.CaptureFixture[str]) -> None:
    starts = 0

    def command() -> list[str]:
        nonlocal starts
        starts += 1
        end = "sys.exit(3)" if starts < 3 else "time.sleep(60)"
        return [sys.executable, "-c", f"import sys, time; print('up', flush=True); {end}"]

    child = Child("broker 2", command, lambda line: line == "up")
    with _ended(child):
        running = asyncio.create_task(child.run())
        while starts < 3 or child.process_id is None:
            await asyncio.sleep(0.01)
        child.stop()
        assert await asyncio.wait_for(running, 20) == -signal.SIGTERM
    output = capfd.readouterr().err
    assert output.count("broker 2 | ended with code 3; starting it again in ") == 2


async def test_the_signal_that_ended_it_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    with _ended(_child("import time; print('up', flush=True); time.sleep(60)")) as child:
        running = asyncio.create_task(child.run())
        await child.up.wait()
        assert child.process_id is not None
        os.kill(child.process_id, signal.SIGKILL)
        while "SIGKILL" not in (output := capfd.readouterr().err):
            await asyncio.sleep(0.01)
        assert output.startswith("broker 1 | was ended by SIGKILL; starting it again in 0.01 s")
        child.stop()
        await asyncio.wait_for(running, 20)


async def test_a_stop_during_the_pause_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervised, "_PAUSE_SECONDS", 60)
    child = _child("import sys; print('up', flush=True); sys.exit(3)")
    running = asyncio.create_task(child.run())
    await child.up.wait()
    while child.process_id is not None:
        await asyncio.sleep(0.01)
    child.stop()
    assert await asyncio.wait_for(running, 20) == 3


async def test_it_does_not_outlive_its_parent() -> None:
    program = (
        "import asyncio, sys; from martlet.cli.supervised import Child\n"
        "code = 'import os, time; print(os.getpid(), flush=True); time.sleep(60)'\n"
        "child = Child('c', lambda: [sys.executable, '-c', code], lambda line: print(line, flush=True) or True)\n"
        "asyncio.run(child.run())"
    )
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    assert parent.stdout is not None
    child_id = int(await asyncio.wait_for(parent.stdout.readline(), 30))
    parent.kill()
    await parent.wait()
    for _ in range(500):
        try:
            os.kill(child_id, 0)
        except ProcessLookupError:
            return
        await asyncio.sleep(0.01)
    os.kill(child_id, signal.SIGKILL)
    raise AssertionError("the child still runs")
