"""The SQLite store and its simulated twin answer every sequence of calls alike, restarts included.

Method: a Hypothesis state machine makes each call on both and compares the answers, errors too. The clock is one and
the same; leases run out in both. At the end, and at every restart, the watchable history of both is compared.
"""

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule
from sim.clock import SimClock
from sim.store import SimStore, SimStoreState

from martlet.cluster.store import LeaseId, MetaStore
from martlet.stores.sqlite import SqliteStore
from tests.store_calls import COMMITS, KEYS, Commit, answer, history

_HISTORY = 7


class TwoStores(RuleBasedStateMachine):
    """Every rule acts on both stores."""

    leases = Bundle("leases")

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.clock = SimClock()
        self.directory = Path(tempfile.mkdtemp(prefix="martlet-store-"))
        self.state = SimStoreState(history_revisions=_HISTORY)
        self.real: MetaStore
        self.twin: MetaStore
        self.revision = 0

    @initialize()
    def open(self) -> None:
        path = str(self.directory / "metadata.db")
        self.real = self.runner.run(SqliteStore.open(path, clock=self.clock, history_revisions=_HISTORY))
        self.twin = SimStore(self.clock, self.state)

    def teardown(self) -> None:
        self.runner.run(self.real.close())
        self.runner.run(self.twin.close())
        self.runner.close()
        shutil.rmtree(self.directory)

    def _both(self, call: Callable[[MetaStore], Coroutine[Any, Any, Any]]) -> Any:
        answers = [self.runner.run(answer(call(store), with_text=True)) for store in (self.real, self.twin)]
        assert answers[0] == answers[1]
        return answers[0]

    @rule(commit=COMMITS, lease=st.none() | leases)
    def commit(self, commit: Commit, lease: LeaseId | None) -> None:
        compares = commit.compares(self.state)
        self._both(
            lambda store: store.commit(
                compares, commit.puts, commit.deletes, delete_prefixes=commit.prefixes, lease=lease
            )
        )

    @rule(key=KEYS)
    def get(self, key: str) -> None:
        self._both(lambda store: store.get(key))

    @rule(target=leases, ttl_ms=st.sampled_from([10, 20, 30]))
    def grant(self, ttl_ms: int) -> Any:
        return self._both(lambda store: store.grant(ttl_ms))

    @rule(lease=leases, key=KEYS)
    def put_under_lease(self, lease: LeaseId, key: str) -> None:
        self._both(lambda store: store.commit({}, {key: b"leased"}, lease=lease))

    @rule(key=KEYS)
    def put_without_lease(self, key: str) -> None:
        self._both(lambda store: store.commit({}, {key: b"free"}))

    @rule(target=leases, ttl_ms=st.sampled_from([10, 20]), keys=st.lists(KEYS, min_size=1, max_size=2, unique=True))
    def grant_and_put(self, ttl_ms: int, keys: list[str]) -> Any:
        lease = self._both(lambda store: store.grant(ttl_ms))
        self._both(lambda store: store.commit({}, dict.fromkeys(keys, b"leased"), lease=lease))
        return lease

    @rule(lease=leases)
    def keep_alive(self, lease: LeaseId) -> None:
        self._both(lambda store: store.keep_alive(lease))

    @rule(target=leases, lease=consumes(leases), forget=st.booleans())
    def revoke(self, lease: LeaseId, forget: bool) -> Any:
        self._both(lambda store: store.revoke(lease))
        return multiple() if forget else lease

    @rule(elapsed_ms=st.sampled_from([5, 10, 30]))
    def let_time_pass(self, elapsed_ms: int) -> None:
        self.clock.advance(elapsed_ms)

    @rule(prefix=st.sampled_from(["", "a/", "b"]), back=st.integers(0, 120))
    def watch(self, prefix: str, back: int) -> None:
        revision = self.runner.run(self.real.list("")).revision
        after = max(0, revision - back)
        self._both(lambda store: history(store, prefix, after, revision))

    @rule()
    def restart(self) -> None:
        self.runner.run(self.real.close())
        self.runner.run(self.twin.close())
        self.open()

    @rule(count=st.integers(20, 60))
    def commit_often(self, count: int) -> None:
        """Far enough to let old history be forgotten."""
        for number in range(count):
            self._both(lambda store, value=b"%d" % number: store.commit({}, {"b": value}))  # type: ignore[misc]

    @invariant()
    def both_list_the_same(self) -> None:
        if hasattr(self, "real"):
            listing = self._both(lambda store: store.list(""))
            assert listing.revision >= self.revision, "STO-2: the revision never goes back"
            self.revision = listing.revision


TestTwoStores = TwoStores.TestCase
TestTwoStores.settings = settings(
    max_examples=25,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
