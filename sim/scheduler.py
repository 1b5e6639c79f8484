"""Virtual time and whose turn it is: the one scheduler below all event loops of a simulated run.

How it works: time is a whole number of nanoseconds and stands still while anything is ready. Every simulated process
has an event loop of its own (`SimLoop`); the scheduler picks one that has something ready, by seeded chance when
there are several, and lets it make one turn, exactly as a real loop would: everything that was ready when the turn
began, first come first served. When no loop is ready, time jumps to the next timer. Besides the loops' timers
there are *alarms*, which belong to no process: the wire, the device behind a disk, faults.

Invariants: (SIM-13) within one loop callbacks run in the order in which they became ready, which is what asyncio
promises, so chance decides only between processes; (SIM-14) timers fire in the order of their time and, at the same
time, in that in which they were set; (SIM-15) the same seed and the same calls give the same run.
"""

import contextlib
import heapq
import sys
from asyncio import TimerHandle, events
from bisect import insort
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, cast

from martlet.base.invariant import invariant
from martlet.base.randomness import Randomness
from sim.guard import real_world_refused
from sim.refusals import RefusingLoop
from sim.run_trace import SimTrace

if TYPE_CHECKING:
    from sim.loop import SimLoop

NS_PER_MS: Final = 1_000_000
NS_PER_SECOND: Final = 1_000_000_000


class SimDeadlock(RuntimeError):
    """Nothing is ready, no timer is set, and what is waited for has not happened: it never will."""


class SimOverrun(RuntimeError):
    """The run takes more steps than it may, in all or without time moving on: something spins."""


class Alarm:
    """A call at a moment of virtual time that belongs to no process."""

    __slots__ = ("_callback", "_is_cancelled")

    def __init__(self, callback: Callable[[], object]) -> None:
        self._callback = callback
        self._is_cancelled = False

    def cancel(self) -> None:
        self._is_cancelled = True

    def ring(self) -> None:
        self._callback()

    def cancelled(self) -> bool:
        return self._is_cancelled


class SimScheduler:
    """Owner of virtual time; `run` is the only place where simulated code is called from."""

    def __init__(
        self,
        randomness: Randomness,
        trace: SimTrace | None = None,
        *,
        shuffle: bool = True,
        steps_max: int = 50_000_000,
        steps_per_instant_max: int = 500_000,
    ) -> None:
        self.now_ns = 0
        self.steps = 0
        self.trace = trace if trace is not None else SimTrace()
        self.after_turn: Callable[[SimLoop], None] | None = None
        """Called with the process that has just made a turn; for judges, which read and change nothing."""
        self._randomness = randomness
        self._shuffle = shuffle
        self._steps_max = steps_max
        self._steps_per_instant_max = steps_per_instant_max
        self._instant_began_at_step = 0
        self._due: list[tuple[int, int, Alarm | TimerHandle, SimLoop | None]] = []
        self._due_count = 0
        self._ready: list[tuple[int, SimLoop]] = []
        self._loops: list[SimLoop] = []
        self._generator_loops: dict[int, SimLoop] = {}

    # --- what loops and the simulated world call

    def register(self, loop: "SimLoop") -> int:
        """A new loop's place among all loops, which decides nothing but keeps order."""
        self._loops.append(loop)
        return len(self._loops) - 1

    def loop_is_ready(self, loop: "SimLoop") -> None:
        insort(self._ready, (loop.number, loop))

    def loop_is_idle(self, loop: "SimLoop") -> None:
        self._ready = [entry for entry in self._ready if entry[1] is not loop]

    def add_timer(self, when_ns: int, handle: TimerHandle, loop: "SimLoop") -> None:
        self._due_count += 1
        heapq.heappush(self._due, (max(when_ns, self.now_ns), self._due_count, handle, loop))

    def alarm_at(self, when_ns: int, callback: Callable[[], object]) -> Alarm:
        """Call at that moment, or in this one when it has passed; outside of any process."""
        alarm = Alarm(callback)
        self._due_count += 1
        heapq.heappush(self._due, (max(when_ns, self.now_ns), self._due_count, alarm, None))
        return alarm

    def alarm_in(self, delay_ns: int, callback: Callable[[], object]) -> Alarm:
        return self.alarm_at(self.now_ns + delay_ns, callback)

    def note(self, place: str, what: str) -> None:
        """Add a line to the trace."""
        self.trace.note(self.now_ns, place, what)

    # --- running

    def run(self, until: Callable[[], bool], *, deadline_ns: int | None = None) -> bool:
        """Let the world turn until the condition holds; False when the deadline came first.

        Raises SimDeadlock when neither can happen any more, and SimOverrun when something spins.
        """
        with self._running():
            while not until():
                if not self._turn(deadline_ns):
                    return False
        return True

    def _turn(self, deadline_ns: int | None) -> bool:
        self._wake_due()
        ready = self._ready
        if not ready:
            return self._pass_time(deadline_ns)
        chosen = self._randomness.below(len(ready)) if self._shuffle and len(ready) > 1 else 0
        loop = ready[chosen][1]
        steps = loop.make_turn()
        self._count_steps(steps)
        self.note(loop.name, f"turn {steps}")
        if self.after_turn is not None:
            self.after_turn(loop)
        return True

    def _wake_due(self) -> None:
        due = self._due
        while due and due[0][0] <= self.now_ns:
            _, _, handle, loop = heapq.heappop(due)
            if handle.cancelled():
                continue
            if isinstance(handle, Alarm):
                self._count_steps(1)
                handle.ring()
            elif loop is not None:
                loop.timer_is_due(handle)

    def _pass_time(self, deadline_ns: int | None) -> bool:
        due = self._due
        while due and due[0][2].cancelled():
            heapq.heappop(due)
        if deadline_ns is not None and (not due or due[0][0] > deadline_ns):
            self.now_ns = max(self.now_ns, deadline_ns)
            return False
        if not due:
            raise SimDeadlock(f"nothing can happen any more at {self.now_ns} ns; waiting: {self.describe_waiting()}")
        self.now_ns = due[0][0]
        self._instant_began_at_step = self.steps
        return True

    def _count_steps(self, count: int) -> None:
        self.steps += count
        if self.steps > self._steps_max:
            raise SimOverrun(f"more than {self._steps_max} steps; running: {self.describe_waiting()}")
        if self.steps - self._instant_began_at_step > self._steps_per_instant_max:
            raise SimOverrun(
                f"more than {self._steps_per_instant_max} steps at {self.now_ns} ns without time moving on; "
                f"running: {self.describe_waiting()}"
            )

    def describe_waiting(self) -> str:
        """The unfinished tasks of all loops by name, and where each one waits."""
        waiting = [line for loop in self._loops if not loop.is_dead for line in loop.describe_tasks()]
        return "; ".join(waiting) or "no task"

    @contextlib.contextmanager
    def _running(self) -> Iterator[None]:
        outer = events._get_running_loop()  # noqa: SLF001 - a loop has to set itself as the running one
        invariant(outer is None or outer not in self._loops, "simulated code cannot run its own simulation")
        events._set_running_loop(None)  # noqa: SLF001
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(firstiter=self._generator_begins, finalizer=self._generator_dropped)
        try:
            with real_world_refused():
                yield
        finally:
            sys.set_asyncgen_hooks(*hooks)
            events._set_running_loop(outer)  # noqa: SLF001

    def _generator_begins(self, generator: AsyncGenerator[Any, Any]) -> None:
        loop = events._get_running_loop()  # noqa: SLF001
        if isinstance(loop, RefusingLoop):
            # By id, because a weak reference is gone when the finaliser wants to know; one that has ended leaves its
            # entry to the loop that gets its id.
            self._generator_loops[id(generator)] = cast("SimLoop", loop)

    def _generator_dropped(self, generator: AsyncGenerator[Any, Any]) -> None:
        loop = self._generator_loops.pop(id(generator), None)
        if loop is not None:
            loop.generator_dropped(generator)
