"""Every interleaving, within small bounds, of runs that end groups of transactions, with the machine itself inside.

Two runs of a program, the first of which may live on; steps of two tasks and of one; retries, time-outs of children,
answers that are lost, requests that arrive late and twice, and coordinators that restart and forget what was appended
but not committed. A state of the coordinator is the set of its records: for each step a machine is made that has
replayed them, asked, and left. The partitions are modelled: each attempt writes one row in one partition of its own.
"""

from collections import deque
from collections.abc import Callable, Iterator
from operator import methodcaller
from typing import Any, Final, NamedTuple

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import TopicPartition
from martlet.coordinator.result import Result
from martlet.transactions.machine import TransactionsMachine
from martlet.transactions.names import child_name
from martlet.transactions.records import ProducerPair, TransactionRecord, TransactionRemoved, TransactionStored
from martlet.transactions.requests import InitWish, OfTransaction, TransactionsOptions
from martlet.transactions.states import TransactionState
from martlet.transactions.transaction_groups import EndGroupWish, OpenGroupWish
from martlet.transactions.transitions import Generation
from martlet.transactions.work import timeout_key

TASKS: Final = (2, 1)
"""Of each step."""
RUNS: Final = (b"a" * 16, b"b" * 16)
ROW: Final = frozenset((TopicPartition("rows", 0),))
GROUP: Final = "g"
OWNER: Final = "txg:g"
_MAY_BE_LOST: Final = ("began", "done")
"""An attempt that hears nothing is given up, which is the same as one that reports nothing."""

Records = frozenset[TransactionStored]


class Answer(NamedTuple):
    """What a client hears once the append is committed."""

    kind: str
    subject: Any
    value: Any = None


class Appended(NamedTuple):
    """The records after one append, and the answers that wait for its commit."""

    records: Records
    answers: tuple[Answer, ...] = ()


class Run(NamedTuple):
    """A run at work: its token, the step it is at, and which attempts have reported."""

    token: ProducerPair
    step: int
    reports: frozenset[OfTransaction] = frozenset()
    has_asked: bool = False


class Budget(NamedTuple):
    """How often what is not the rule may still happen."""

    attempts: int = 0
    timeouts: int = 0
    restarts: int = 0
    repeats: int = 0


class World(NamedTuple):
    """One state of everything; `log[0]` is committed."""

    log: tuple[Appended, ...]
    runs: tuple[Run | None, ...]
    opened: frozenset[OfTransaction]
    written: frozenset[OfTransaction]
    rows: frozenset[tuple[str, str]]
    """By child "open", "committed" or "aborted"."""
    believed: frozenset[tuple[int, int]]
    """Runs with the steps that they take for done."""
    ends: frozenset[tuple[int, int, frozenset[OfTransaction]]]
    """Requests to end a step that are on their way for ever."""
    budget: Budget


Step = tuple[str, World]
MakeMachine = Callable[[], TransactionsMachine]


def sound_machine() -> TransactionsMachine:
    return TransactionsMachine(TransactionsOptions(), lambda: 1)


class GroupEndModel:
    """The steps from one world to the next."""

    def __init__(self, budget: Budget, make: MakeMachine = sound_machine) -> None:
        self._make = make
        self._budget = budget

    def start(self) -> World:
        machine = self._machine(frozenset())
        result = machine.open_group(OpenGroupWish(GROUP, RUNS[0], "place", 0), 0)
        records = _after(frozenset(), result)
        opened: Any = result.response
        empty: frozenset[Any] = frozenset()
        run = Run(opened.token, 0)
        return World((Appended(records),), (run, None), empty, empty, empty, empty, empty, self._budget)

    def steps(self, world: World) -> Iterator[Step]:
        yield from self._log_steps(world)
        yield from self._marker_steps(world)
        yield from self._second_run(world)
        for number, run in enumerate(world.runs):
            if run is not None and run.step < len(TASKS):
                yield from self._attempts(world, number, run)
                yield from self._reports(world, number, run)
        yield from self._writes(world)
        yield from self._ends(world)
        yield from self._timeouts(world)

    # --- the coordinator

    def _machine(self, records: Records) -> TransactionsMachine:
        machine = self._make()
        for record in sorted(records, key=lambda stored: stored.transactional_id):
            machine.replay(record)
        return machine

    def _ask(
        self, world: World, operation: Callable[[TransactionsMachine], Result[TransactionRecord, Any]], answer: Answer
    ) -> World | None:
        """The world after a request; None when it is refused or changes and answers nothing."""
        records = world.log[-1].records
        try:
            result = operation(self._machine(records))
        except ApiError:
            return None
        if isinstance(result.response, ApiError):
            answers: tuple[Answer, ...] = ()
        else:
            answers = (answer._replace(value=result.response),)
        if result.records and len(world.log) > 1:
            return None  # one append at a time keeps the space small; two are covered by order
        if not result.records:
            if len(world.log) == 1:
                return _heard(world, answers)
            last = world.log[-1]
            new = tuple(one for one in answers if one not in last.answers)
            return world._replace(log=(*world.log[:-1], last._replace(answers=(*last.answers, *new))))
        return world._replace(log=(*world.log, Appended(_after(records, result), answers)))

    def _log_steps(self, world: World) -> Iterator[Step]:
        if len(world.log) == 1:
            return
        committed = world._replace(log=(world.log[1]._replace(answers=()), *world.log[2:]))
        yield "commit", _heard(committed, world.log[1].answers)
        if any(answer.kind in _MAY_BE_LOST for answer in world.log[1].answers):
            yield "commit, answer lost", committed
        if world.budget.restarts:
            budget = world.budget._replace(restarts=world.budget.restarts - 1)
            yield "restart", world._replace(log=(world.log[0],), budget=budget)

    def _marker_steps(self, world: World) -> Iterator[Step]:
        rows = dict(world.rows)
        for stored in world.log[0].records:
            name = stored.transactional_id
            if stored.state.is_prepared and rows.get(name) == "open":
                end = "committed" if stored.state is TransactionState.PREPARE_COMMIT else "aborted"
                yield f"marker {name}", world._replace(rows=frozenset((rows | {name: end}).items()))

    def _timeouts(self, world: World) -> Iterator[Step]:
        if not world.budget.timeouts:
            return
        budget = world.budget._replace(timeouts=world.budget.timeouts - 1)
        for stored in world.log[-1].records:
            if stored.state is TransactionState.ONGOING:
                key = timeout_key(stored)
                after = self._ask(world._replace(budget=budget), methodcaller("on_timer", key, 0), Answer("", None))
                if after is not None:
                    yield f"time-out {key[1]}", after

    # --- runs and their tasks

    def _second_run(self, world: World) -> Iterator[Step]:
        if world.runs[1] is None:
            resume = max((step + 1 for _, step in world.believed), default=0)
            wish = OpenGroupWish(GROUP, RUNS[1], "place", resume)
            after = self._ask(world, methodcaller("open_group", wish, 0), Answer("began", resume))
            if after is not None:
                yield "second run begins", after

    def _attempts(self, world: World, number: int, run: Run) -> Iterator[Step]:
        for task in range(TASKS[run.step]):
            known = [of for of in world.opened | world.written if _is_of(of, run, task)]
            stored = {one.transactional_id for one in world.log[-1].records}
            attempts = {of.transactional_id for of in known} | {
                name for name in stored if name.startswith(f"{OWNER}#{run.token.epoch}.{run.step}.{task}.")
            }
            is_lost = all(dict(world.rows).get(name) == "aborted" or name not in stored for name in attempts)
            if attempts and not (len(attempts) <= 2 and (world.budget.attempts or is_lost)):
                continue
            spent = 0 if is_lost else 1
            before = world._replace(budget=world.budget._replace(attempts=world.budget.attempts - spent))
            name = f"{OWNER}#{run.token.epoch}.{run.step}.{task}.{len(attempts)}"
            wish = InitWish(name, 60_000)
            after = self._ask(before, methodcaller("init_producer_id", wish, 0), Answer("opened", name))
            if after is not None:
                yield f"open {name}", after

    def _reports(self, world: World, number: int, run: Run) -> Iterator[Step]:
        tasks_reported = {_task(of) for of in run.reports}
        for of in world.written:
            name = child_name(of.transactional_id)
            assert name is not None
            is_ours = name.owner_epoch == run.token.epoch and name.sequence == run.step
            if is_ours and name.task not in tasks_reported and not run.has_asked:
                yield (
                    f"report {of.transactional_id}",
                    _with_run(world, number, run._replace(reports=run.reports | {of})),
                )
        last = _last_sequence(world.log[0].records)
        is_full = tasks_reported == set(range(TASKS[run.step]))
        if is_full or (last >= run.step and not run.reports):
            end = (number, run.step, run.reports)
            if end not in world.ends:
                yield (
                    "send end",
                    _with_run(world, number, run._replace(has_asked=True))._replace(ends=world.ends | {end}),
                )

    def _writes(self, world: World) -> Iterator[Step]:
        for of in world.opened:
            answer = Answer("written", of)
            after = self._ask(world, methodcaller("add_partitions", of, ROW, Generation.SECOND, 0), answer)
            if after is not None:
                yield f"write {of.transactional_id}", after

    def _ends(self, world: World) -> Iterator[Step]:
        for number, step, winners in world.ends:
            run = world.runs[number]
            assert run is not None
            is_repeat = run.step != step
            if is_repeat and not world.budget.repeats:
                continue
            spent = world.budget._replace(repeats=world.budget.repeats - is_repeat)
            before = world._replace(budget=spent)
            wish = EndGroupWish(GROUP, run.token, step, tuple(sorted(winners)))
            try:
                result = self._machine(world.log[-1].records).end_group(wish, 0)
            except ApiError as error:
                if error.code is ErrorCode.TRANSACTION_ABORTABLE and not is_repeat:
                    again = run._replace(reports=frozenset(), has_asked=False)
                    yield (
                        "end refused",
                        _with_run(before, number, again)._replace(ends=world.ends - {(number, step, winners)}),
                    )
                continue
            after = self._ask(before, methodcaller("end_group", wish, 0), Answer("done", (number, step)))
            if after is not None and (result.records or not is_repeat):
                yield f"end of step {step}", after


# --- what clients hear


def _heard(world: World, answers: tuple[Answer, ...]) -> World:
    for answer in answers:
        if answer.kind == "opened":
            of = OfTransaction(answer.subject, answer.value.pair)
            world = world._replace(opened=world.opened | {of})
        elif answer.kind == "written":
            rows = dict(world.rows)
            rows.setdefault(answer.subject.transactional_id, "open")
            world = world._replace(written=world.written | {answer.subject}, rows=frozenset(rows.items()))
        elif answer.kind == "began":
            world = _with_run(world, 1, Run(answer.value.token, answer.subject))
        elif answer.kind == "done":
            number, step = answer.subject
            run = world.runs[number]
            assert run is not None
            if run.step == step:
                world = _with_run(world, number, Run(run.token, step + 1))
                world = world._replace(believed=world.believed | {(number, step)})
    return world


def _with_run(world: World, number: int, run: Run) -> World:
    runs = tuple(run if place == number else other for place, other in enumerate(world.runs))
    return world._replace(runs=runs)


def _is_of(of: OfTransaction, run: Run, task: int) -> bool:
    name = child_name(of.transactional_id)
    return name is not None and (name.owner_epoch, name.sequence, name.task) == (run.token.epoch, run.step, task)


def _task(of: OfTransaction) -> int:
    name = child_name(of.transactional_id)
    assert name is not None
    return name.task


def _after(records: Records, result: Result[TransactionRecord, Any]) -> Records:
    by_id = {stored.transactional_id: stored for stored in records}
    for record in result.records:
        if isinstance(record, TransactionRemoved):
            by_id.pop(record.transactional_id, None)
        else:
            by_id[record.transactional_id] = record
    return frozenset(by_id.values())


def _last_sequence(records: Records) -> int:
    (owner,) = (stored for stored in records if stored.transactional_id == OWNER)
    assert owner.group is not None
    return owner.group.last_sequence


# --- what must hold


def fault(world: World) -> str | None:
    """What is wrong with a world; None when nothing is."""
    committed = [child_name(name) for name, end in world.rows if end == "committed"]
    places = [(name.sequence, name.task) for name in committed if name is not None]
    if len(places) != len(set(places)):
        return "the rows of two attempts of one task are visible"
    for step in range(len(TASKS)):
        if len({name.owner_epoch for name in committed if name is not None and name.sequence == step}) > 1:
            return f"step {step} is a mixture of two runs"
    records = world.log[0].records
    last = _last_sequence(records)
    if any(step > last for step, _ in places):
        return "rows of a step are visible that is not decided"
    rows = dict(world.rows)
    deciding = {
        (name.sequence, name.task)
        for stored in records
        if stored.state is TransactionState.PREPARE_COMMIT and (name := child_name(stored.transactional_id)) is not None
    }
    if any(
        stored.state is TransactionState.PREPARE_COMMIT and rows.get(stored.transactional_id) == "aborted"
        for stored in records
    ):
        return "a winner was aborted"
    for _, step in world.believed:
        if step > last:
            return f"a run was told that step {step} is done, and it is not decided"
        for task in range(TASKS[step]):
            if (step, task) not in deciding and (step, task) not in places:
                return f"step {step} is done without the rows of task {task}"
    return None


def is_settled(world: World) -> bool:
    """Everything is done, and nothing is open."""
    run = world.runs[1] or world.runs[0]
    is_done = run is not None and run.step >= len(TASKS) and len(world.log) == 1
    return is_done and all(end != "open" for _, end in world.rows)


def explore(model: GroupEndModel, *, limit: int, settles: bool = True) -> tuple[int, str | None, list[str]]:
    """Breadth first: how many worlds there are, and the first fault with the way to it."""
    start = model.start()
    number_of = {start: 0}
    came_from: list[tuple[int, str] | None] = [None]
    leads_to: list[list[int]] = [[]]
    worlds = [start]
    waiting = deque([0])

    def way(number: int) -> list[str]:
        names: list[str] = []
        while (step := came_from[number]) is not None:
            number, name = step
            names.append(name)
        return names[::-1]

    while waiting:
        number = waiting.popleft()
        for name, world in model.steps(worlds[number]):
            known = number_of.get(world)
            if known is None:
                known = number_of[world] = len(worlds)
                worlds.append(world)
                came_from.append((number, name))
                leads_to.append([])
                waiting.append(known)
                found = fault(world)
                if found is not None:
                    return len(worlds), found, way(known)
                assert len(worlds) <= limit, "more worlds than expected"
            leads_to[known].append(number)
    if settles:
        can_settle = [is_settled(world) for world in worlds]
        waiting = deque(number for number, is_ in enumerate(can_settle) if is_)
        while waiting:
            for before in leads_to[waiting.popleft()]:
                if not can_settle[before]:
                    can_settle[before] = True
                    waiting.append(before)
        stuck = next((number for number, can in enumerate(can_settle) if not can), None)
        if stuck is not None:
            return len(worlds), "from here not every step can be finished with nothing left open", way(stuck)
    return len(worlds), None, []
