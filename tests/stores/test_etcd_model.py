"""A real etcd and the simulated store answer every sequence of calls alike; so what holds in simulations holds on etcd.

Method: as in tests/properties/test_meta_store.py, with revisions counted from where each example began. Time is left
out, for etcd has its own; history is forgotten when the sequence says so.
"""

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from martlet.cluster.store import Change, LeaseId, MetaStore, RevisionCompacted, StoreError
from martlet.stores.etcd import EtcdStore
from martlet.stores.etcd_options import EtcdOptions
from martlet.testing.sim_clock import SimClock
from martlet.testing.sim_store import SimStore, SimStoreState
from tests.stores.etcd_process import EtcdProcess
from tests.stores.relative_store import RelativeStore

_KEYS = st.sampled_from(["a", "a/", "a/1", "a/2", "ab", "b", "b/1", "~"])
_PREFIXES = st.sampled_from(["a", "a/", "b", "z", "~"])
_VALUES = st.binary(max_size=4)


class EtcdAndTwin(RuleBasedStateMachine):
    """Every rule acts on both stores; a lease is a pair of ids, since each store gives its own."""

    etcd: ClassVar[EtcdProcess]
    numbers: ClassVar = itertools.count()
    leases = Bundle("leases")

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.clock = SimClock()
        self.state = SimStoreState()
        self.address = self.etcd.address(f"model-{next(self.numbers)}")
        self.base = self.etcd.revision()
        self.granted: list[LeaseId] = []
        self.open()

    def open(self) -> None:
        self.real: MetaStore = RelativeStore(
            self.runner.run(EtcdStore.open(EtcdOptions(self.address), page_entries=2)), self.base
        )
        self.twin: MetaStore = SimStore(self.clock, self.state)

    def teardown(self) -> None:
        for lease in self.granted:
            self.runner.run(self.real.revoke(lease))
        self.runner.run(self.real.close())
        self.runner.run(self.twin.close())
        self.runner.close()

    def _both(self, call: Callable[[MetaStore, int], Coroutine[Any, Any, Any]]) -> Any:
        answers = [self.runner.run(_answer(call(store, side))) for side, store in enumerate((self.real, self.twin))]
        assert answers[0] == answers[1]
        return answers[0]

    @rule(
        compared=st.dictionaries(_KEYS, st.sampled_from(["right", "absent", "wrong"]), max_size=2),
        puts=st.dictionaries(_KEYS, _VALUES, max_size=3),
        deletes=st.sets(_KEYS, max_size=2),
        prefixes=st.sets(_PREFIXES, max_size=2),
        lease=st.none() | leases,
    )
    def commit(
        self,
        compared: dict[str, str],
        puts: dict[str, bytes],
        deletes: set[str],
        prefixes: set[str],
        lease: tuple[LeaseId, LeaseId] | None,
    ) -> None:
        compares = {key: self._expected(key, kind) for key, kind in compared.items()}
        prefixes = {prefix for prefix in prefixes if not any(key.startswith(prefix) for key in puts)}
        deletes = {key for key in deletes - puts.keys() if not any(key.startswith(prefix) for prefix in prefixes)}
        self._both(
            lambda store, side: store.commit(
                compares,
                puts,
                sorted(deletes),
                delete_prefixes=sorted(prefixes),
                lease=None if lease is None else lease[side],
            )
        )

    def _expected(self, key: str, kind: str) -> int:
        entry = self.state.entries.get(key)
        present = entry.mod_revision if entry is not None else 0
        return {"right": present, "absent": 0, "wrong": present + 1}[kind]

    @rule(key=_KEYS)
    def get(self, key: str) -> None:
        self._both(lambda store, side: store.get(key))

    @rule(target=leases)
    def grant(self) -> tuple[LeaseId, LeaseId]:
        pair = self.runner.run(self.real.grant(60_000)), self.runner.run(self.twin.grant(60_000))
        self.granted.append(pair[0])
        return pair

    @rule(lease=leases)
    def keep_alive(self, lease: tuple[LeaseId, LeaseId]) -> None:
        self._both(lambda store, side: store.keep_alive(lease[side]))

    @rule(target=leases, lease=consumes(leases), forget=st.booleans())
    def revoke(self, lease: tuple[LeaseId, LeaseId], forget: bool) -> Any:
        self._both(lambda store, side: store.revoke(lease[side]))
        return multiple() if forget else lease

    @rule(prefix=st.sampled_from(["", "a/", "b"]), back=st.integers(0, 30))
    def watch(self, prefix: str, back: int) -> None:
        revision = self.state.revision
        after = max(0, revision - back)
        self._both(lambda store, side: _history(store, prefix, after, revision))

    @rule()
    def forget_history(self) -> None:
        if self.state.revision > self.state.floor:
            self.etcd.compact(self.base + self.state.revision)
            self.state.compact()

    @rule()
    def restart(self) -> None:
        self.runner.run(self.real.close())
        self.runner.run(self.twin.close())
        self.open()

    @invariant()
    def both_list_the_same(self) -> None:
        self._both(lambda store, side: store.list(""))


async def _answer(call: Coroutine[Any, Any, Any]) -> Any:
    """The result, or the error as a value that can be compared."""
    try:
        return await call
    except RevisionCompacted as error:
        return type(error), error.oldest_revision
    except StoreError as error:
        return type(error)


async def _history(store: MetaStore, prefix: str, after: int, up_to: int) -> list[Change]:
    """What a watch delivers up to a revision; progress without events is left out, its timing being free."""
    changes: list[Change] = []
    if after >= up_to:
        return changes
    async with asyncio.timeout(10), aclosing(store.watch(prefix, after)) as watch:
        async for change in watch:
            if change.events:
                changes.append(change)
            if change.revision >= up_to:
                break
    return changes


@pytest.mark.timeout(300)
def test_a_real_etcd_and_the_simulated_store_answer_alike(etcd: EtcdProcess) -> None:
    EtcdAndTwin.etcd = etcd
    run_state_machine_as_test(
        EtcdAndTwin,
        settings=settings(
            max_examples=12,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )
