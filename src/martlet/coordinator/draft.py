"""What a handler collects while it decides: records, timers and answers, and the state as these records will leave it.

A handler may change nothing, yet each of its steps has to see the effect of the step before. So it works on a draft: a
copy of the state that shares everything with it but the changes. `record` applies a record to the copy and notes it,
`result` hands over what was noted; the runtime then replays the same records on the state itself.

To be drafted, a state has two methods. `draft` returns the copy, in constant time however large the state is: its
mappings are put behind an `Overlay`. `replay` changes the state by one record; it replaces the values of mappings and
never changes one in place, because the copy shares them.

Proved by: tests/unit/coordinator/test_draft.py
"""

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any, Generic, Protocol, Self, TypeVar

from martlet.coordinator.result import Answer, CancelTimer, Parked, Result, SetTimer, TimerKey, WaitKey

R = TypeVar("R")
R_contra = TypeVar("R_contra", contravariant=True)
T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


class Draftable(Protocol[R_contra]):
    """A state that handlers can work on by drafts."""

    def draft(self) -> Self:
        """A copy that can be changed without this one noticing, made in constant time."""
        ...

    def replay(self, record: R_contra) -> None:
        """Change the state by one record."""
        ...


S = TypeVar("S", bound=Draftable[Any])


class Draft(Generic[S, R]):
    """One handler's work on one state; `before` is the state itself, `state` the copy."""

    __slots__ = ("answers", "before", "effects", "now_ms", "records", "state", "timers")

    def __init__(self, before: S, now_ms: int) -> None:
        self.before: S = before
        self.state: S = before.draft()
        self.now_ms = now_ms
        self.records: list[R] = []
        self.timers: list[SetTimer | CancelTimer] = []
        self.answers: list[Answer] = []
        self.effects: list[object] = []

    def record(self, *records: R) -> None:
        """Note what happens, and apply it to the copy."""
        for record in records:
            self.state.replay(record)
            self.records.append(record)

    def record_last(self, record: R) -> None:
        """Note the record with which the work ends; the copy, not needed from here on, is spared the cost of it."""
        self.records.append(record)

    def set_timer(self, key: TimerKey, delay_ms: int) -> None:
        self.timers.append(SetTimer(key, delay_ms))

    def cancel_timers(self, *keys: TimerKey) -> None:
        self.timers += map(CancelTimer, keys)

    def answer(self, key: WaitKey, response: object) -> None:
        """Answer the request parked under this key, if there is one."""
        self.answers.append(Answer(key, response))

    def result(self, response: T | Parked | None = None) -> Result[R, T]:
        return Result(response, self.records, self.timers, self.answers, self.effects)


class Overlay(MutableMapping[K, V]):
    """A mapping over another one that keeps its changes to itself; `base` must not change meanwhile.

    Entries come in the order in which a plain dictionary would have them after the same changes.
    """

    __slots__ = ("_added", "_base", "_gone", "_replaced")

    def __init__(self, base: Mapping[K, V]) -> None:
        self._base = base
        self._replaced: dict[K, V] = {}
        self._gone: set[K] = set()
        self._added: dict[K, V] = {}

    @property
    def has_other_keys(self) -> bool:
        """Whether a key came or went; without comparing the mappings."""
        return self._gone != self._added.keys()

    def __getitem__(self, key: K) -> V:
        if key in self._added:
            return self._added[key]
        if key in self._replaced:
            return self._replaced[key]
        if key in self._gone:
            raise KeyError(key)
        return self._base[key]

    def __setitem__(self, key: K, value: V) -> None:
        is_in_place = key in self._base and key not in self._gone
        (self._replaced if is_in_place else self._added)[key] = value

    def __delitem__(self, key: K) -> None:
        if key in self._added:
            del self._added[key]
        elif key in self._base and key not in self._gone:
            self._replaced.pop(key, None)
            self._gone.add(key)
        else:
            raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        return key in self._added or (key in self._base and key not in self._gone)

    def __iter__(self) -> Iterator[K]:
        for key in self._base:
            if key not in self._gone:
                yield key
        yield from self._added

    def __len__(self) -> int:
        return len(self._base) - len(self._gone) + len(self._added)

    def __repr__(self) -> str:
        return repr(dict(self))
