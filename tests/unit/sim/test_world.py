"""The simulated world: processes that die without a word, machines without power, erring clocks, runs that repeat."""

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator

import pytest
from sim.failing_device import SimCrash
from sim.host import SimHost
from sim.world import SimTimeout, SimWorld


async def forever() -> None:
    await asyncio.Event().wait()


def test_a_process_returns_what_its_main_function_returns() -> None:
    async def main() -> int:
        await asyncio.sleep(1)
        return 42

    with SimWorld(1) as world:
        assert world.run_process(world.add_host("a"), main) == 42
        assert world.now_ms == 1_000


def test_what_a_main_function_raises_reaches_the_test() -> None:
    async def main() -> None:
        raise ValueError("wrong")

    with SimWorld(1) as world, pytest.raises(ValueError, match="wrong"):
        world.run_process(world.add_host("a"), main)


def test_waiting_in_vain_tells_which_process_failed_and_why() -> None:
    async def main() -> None:
        raise ValueError("wrong")

    with SimWorld(1) as world:
        world.add_host("a").start(main)
        with pytest.raises(SimTimeout, match=r"a ended by ValueError\('wrong'\)"):
            world.run_until(lambda: False, 1_000)


def test_a_process_that_ends_by_itself_cancels_what_it_left_running() -> None:
    seen: list[str] = []

    async def lingers() -> None:
        try:
            await forever()
        finally:
            seen.append("finally")

    async def main() -> None:
        lingering = asyncio.create_task(lingers())
        await asyncio.sleep(0)
        assert not lingering.done()

    with SimWorld(1) as world:
        world.run_process(world.add_host("a"), main)
        assert seen == ["finally"]


@pytest.mark.parametrize("power_loss", [False, True])
def test_a_crash_runs_no_finally_no_except_and_no_exit_of_a_context(power_loss: bool) -> None:
    seen: list[str] = []

    class Room:
        async def __aenter__(self) -> None: ...

        async def __aexit__(self, *exc_info: object) -> None:
            seen.append("exit")

    async def numbers() -> AsyncIterator[int]:
        try:
            while True:
                yield 1
                await asyncio.sleep(1)
        finally:
            seen.append("generator")

    async def main() -> None:
        try:
            async with Room():
                async for number in numbers():
                    seen.append(f"turn {number}")  # noqa: PERF401 - as they come
        except BaseException:
            seen.append("except")
            raise
        finally:
            seen.append("finally")

    with SimWorld(1) as world:
        host = world.add_host("a")
        host.start(main)
        world.run_for(1_500)
        host.crash(power_loss=power_loss)
        world.run_for(10_000)
        gc.collect()
        assert seen == ["turn 1", "turn 1"]
        assert not host.is_running


def test_timers_threads_and_callbacks_of_a_crashed_process_never_fire() -> None:
    seen: list[str] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(1, seen.append, "timer")
        loop.run_in_executor(None, seen.append, "thread")
        await forever()

    with SimWorld(1) as world:
        host = world.add_host("a")
        host.start(main)
        world.run_until(lambda: host.loop is not None and world.scheduler.steps > 0)
        host.crash(power_loss=False)
        world.run_for(5_000)
        assert seen == []


def test_a_crash_between_a_threads_work_and_its_result_leaves_the_work_done() -> None:
    outcomes: set[tuple[bool, bool]] = set()
    for seed in range(30):
        with SimWorld(seed) as world:
            host = world.add_host("a")
            seen: list[str] = []

            async def main(host: SimHost = host, seen: list[str] = seen) -> None:
                host.disk.make_directory("d")
                await asyncio.to_thread(host.disk.replace_file, "d/f", b"x")
                seen.append("done")

            host.start(main)
            world.run_for(1)
            host.crash(power_loss=False)
            outcomes.add((host.disk.exists("d/f"), bool(seen)))
    assert outcomes >= {(False, False), (True, False)}
    assert (False, True) not in outcomes


def test_a_process_crash_keeps_what_was_written_and_a_power_loss_may_not() -> None:
    async def write(host: SimHost) -> None:
        host.disk.make_directory("d")
        host.disk.sync_directory("")
        file = host.disk.open("d/f", create=True)
        host.disk.sync_directory("d")
        file.append(b"unsynced")
        await forever()

    left: dict[bool, set[bytes | None]] = {False: set(), True: set()}
    for seed in range(20):
        for power_loss in (False, True):
            with SimWorld(seed) as world:
                host = world.add_host("a")
                host.start(lambda host=host: write(host))  # type: ignore[misc]
                world.run_for(10)
                host.crash(power_loss=power_loss)
                left[power_loss].add(host.disk.read_file("d/f"))
    assert left[False] == {b"unsynced"}
    assert b"" in left[True]


def test_a_restarted_host_finds_its_disk_and_a_new_boot_only_after_a_power_loss() -> None:
    boots: list[bytes | None] = []

    async def main(host: SimHost) -> None:
        boots.append(host.disk.read_file("/proc/sys/kernel/random/boot_id"))
        await forever()

    with SimWorld(1) as world:
        host = world.add_host("a")
        for power_loss in (False, True, False):
            host.start(lambda: main(host))
            world.run_for(10)
            host.crash(power_loss=power_loss)
            world.run_for(10)
        assert boots[0] == boots[1] != boots[2]
        assert (host.starts, host.boots) == (3, 2)


@pytest.mark.parametrize("by_power", [False, True])
def test_a_disk_that_stops_takes_the_process_with_it_and_refuses_its_last_breath(by_power: bool) -> None:
    seen: list[str] = []

    async def main(host: SimHost) -> None:
        host.disk.make_directory("d")
        host.disk.sync_directory("")
        try:
            for number in range(10):
                host.disk.replace_file(f"d/{number}", b"x")
                await asyncio.sleep(0.1)
        finally:
            # The interpreter unwinds this one stack, but nothing it does has an effect any more.
            asyncio.get_running_loop().call_soon(seen.append, "callback")
            with pytest.raises(SimCrash):
                host.disk.replace_file("d/last", b"x")

    with SimWorld(1) as world:
        host = world.add_host("a")
        host.dies_by_power = by_power
        host.start(lambda: main(host))
        host.disk.stop_after(11)
        world.run_until(lambda: not host.is_running, 5_000)
        world.run_for(1_000)
        names = [entry.name for entry in host.disk.list_directory("d")]
        assert names == ["0", "1", "2"]
        assert seen == []


def test_a_disk_that_stops_under_a_threads_hands_refuses_its_clean_up_too() -> None:
    refused: list[bool] = []

    async def main(host: SimHost) -> None:
        def work() -> None:
            try:
                host.disk.replace_file("d/f", b"x")
            finally:
                try:
                    host.disk.make_directory("e")
                except SimCrash:
                    refused.append(True)

        host.disk.make_directory("d")
        host.disk.stop_after(0)
        await asyncio.to_thread(work)

    with SimWorld(1) as world:
        host = world.add_host("a")
        host.start(lambda: main(host))
        world.run_until(lambda: not host.is_running, 5_000)
        world.run_for(100)
        assert refused == [True]
        assert not host.disk.exists("e")


def test_a_process_may_crash_itself() -> None:
    async def main(host: SimHost) -> None:
        host.disk.make_directory("d")
        host.crash(power_loss=True)
        with pytest.raises(SimCrash):
            host.disk.make_directory("e")

    with SimWorld(1) as world:
        host = world.add_host("a")
        host.start(lambda: main(host))
        world.run_for(100)
        assert not host.is_running
        assert not host.disk.exists("e")


def test_a_pause_stops_everything_of_a_process_while_time_goes_on() -> None:
    ticks: dict[str, list[int]] = {"a": [], "b": []}

    async def main(world: SimWorld, name: str) -> None:
        while True:
            await asyncio.sleep(1)
            ticks[name].append(world.now_ms)

    with SimWorld(1) as world:
        for name in ticks:
            world.add_host(name).start(lambda name=name: main(world, name))  # type: ignore[misc]
        world.run_for(2_500)
        world.hosts["a"].pause(4_000)
        world.run_for(1_000)
        world.hosts["a"].pause(1_000)
        world.run_for(6_000)
    assert ticks["a"] == [1_000, 2_000, 6_500, 7_500, 8_500, 9_500]
    assert ticks["b"] == [1_000 * second for second in range(1, 10)]


def test_a_drifting_machine_is_early_or_late_with_its_timers_and_both_its_clocks() -> None:
    with SimWorld(1) as world:
        fast = world.add_host("fast", drift_ppm=10_000)
        slow = world.add_host("slow", drift_ppm=-10_000)
        done: dict[str, int] = {}

        async def main(name: str) -> None:
            await asyncio.sleep(100)
            done[name] = world.now_ms

        for host in (fast, slow):
            host.start(lambda host=host: main(host.name))  # type: ignore[misc]
        world.run_until(lambda: len(done) == 2)
        assert done == {"fast": 99_009, "slow": 101_010}
        assert fast.clock.monotonic_ms() > world.clock.monotonic_ms() > slow.clock.monotonic_ms()


def test_a_wall_clock_jumps_and_the_monotonic_clock_does_not_notice() -> None:
    with SimWorld(1) as world:
        host = world.add_host("a")
        before = host.clock.now_ms(), host.clock.monotonic_ms()
        host.clock.jump(-3_600_000)
        assert (host.clock.now_ms(), host.clock.monotonic_ms()) == (before[0] - 3_600_000, before[1])


def test_streams_of_chance_do_not_shift_each_other() -> None:
    def draws(world: SimWorld) -> list[int]:
        return [world.workload.below(1_000) for _ in range(5)]

    with SimWorld(7) as one, SimWorld(7) as other:
        other.network.link("a", "b").delay_ns(10)
        other.add_host("extra")
        assert draws(one) == draws(other)


def chatter(world: SimWorld) -> str:
    """A small busy world; returns its trace hash."""

    async def serve() -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while data := await reader.read(100):
                writer.write(await asyncio.to_thread(data.upper))
            writer.close()

        await asyncio.start_server(answer, "server", 80)
        await forever()

    async def talk() -> None:
        while True:
            try:
                reader, writer = await asyncio.open_connection("server", 80)
            except OSError:
                await asyncio.sleep(0.3)
                continue
            with contextlib.suppress(OSError, TimeoutError):
                for number in range(5):
                    writer.write(b"%d" % number)
                    async with asyncio.timeout(2):
                        await reader.read(100)
            writer.close()

    server = world.add_host("server")
    server.start(serve)
    for number in range(3):
        world.add_host(f"client-{number}").start(talk)
    for round_ in range(10):
        world.run_for(world.workload.below(500))
        if round_ % 2:
            server.crash(power_loss=bool(world.workload.below(2)))
            world.run_for(world.workload.below(500))
            server.start(serve)
        else:
            world.network.cut("server", f"client-{world.workload.below(3)}")
            world.run_for(world.workload.below(500))
            world.network.heal_all()
    return world.trace_hash()


def test_the_same_seed_gives_the_same_trace_and_another_seed_another() -> None:
    hashes = []
    for seed in (1, 1, 2):
        with SimWorld(seed) as world:
            hashes.append(chatter(world))
    assert hashes[0] == hashes[1] != hashes[2]


def test_the_garbage_collector_rests_while_a_world_is_open() -> None:
    assert gc.isenabled()
    with SimWorld(1):
        assert not gc.isenabled()
    assert gc.isenabled()


def test_a_stalled_disk_holds_the_work_of_threads_and_nothing_else() -> None:
    with SimWorld(1) as world:
        host = world.add_host("a")

        async def main() -> list[int]:
            host.stall_disk(5_000)
            await asyncio.sleep(0.1)
            before_ms = world.now_ms
            await asyncio.to_thread(lambda: None)
            return [before_ms, world.now_ms]

        before_ms, after_ms = world.run_process(host, main)
        assert before_ms == 100
        assert 5_000 <= after_ms < 5_100


def test_judges_hear_of_turns_and_of_crashes() -> None:
    with SimWorld(1) as world:
        host = world.add_host("a")
        turns: list[str] = []
        crashes: list[bool] = []
        world.scheduler.after_turn = lambda loop: turns.append(loop.name)
        host.on_crashed = crashes.append
        host.start(forever)
        world.run_for(10)
        assert turns == ["a"]
        host.crash(power_loss=True)
        assert crashes == [True]
        host.wipe_disk()
        assert host.disk.list_directory("") == []
