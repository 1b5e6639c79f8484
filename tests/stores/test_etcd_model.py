"""A real etcd and the simulated store answer every sequence of calls alike; so what holds in simulations holds on etcd.

Method: as in tests/properties/test_meta_store.py, with revisions counted from where each example began. Time is left
out, for etcd has its own; history is forgotten when the sequence says so.
"""

import asyncio
import itertools
from collections.abc import Callable, Coroutine
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
from sim.clock import SimClock
from sim.store import SimStore, SimStoreState

from martlet.cluster.store import LeaseId, MetaStore
from martlet.stores.etcd import EtcdStore
from martlet.stores.etcd_options import EtcdOptions
from tests.store_calls import COMMITS, KEYS, Commit, answer, history
from tests.stores.etcd_process import EtcdProcess
from tests.stores.relative_store import RelativeStore


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
        calls = [call(store, side) for side, store in enumerate((self.real, self.twin))]
        answers = [self.runner.run(answer(one, with_text=False)) for one in calls]
        assert answers[0] == answers[1]
        return answers[0]

    @rule(commit=COMMITS, lease=st.none() | leases)
    def commit(self, commit: Commit, lease: tuple[LeaseId, LeaseId] | None) -> None:
        compares = commit.compares(self.state)
        self._both(
            lambda store, side: store.commit(
                compares,
                commit.puts,
                commit.deletes,
                delete_prefixes=commit.prefixes,
                lease=None if lease is None else lease[side],
            )
        )

    @rule(key=KEYS)
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
        self._both(lambda store, side: history(store, prefix, after, revision))

    @rule()
    def forgethistory(self) -> None:
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
