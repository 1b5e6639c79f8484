"""The SQLite store and its simulated twin answer every sequence of calls alike, restarts included.

Method: a Hypothesis state machine makes each call on both and compares the answers, errors too. The clock is one and
the same; leases run out in both. At the end, and at every restart, the watchable history of both is compared.
"""

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from martlet.cluster.store import Change, LeaseId, MetaStore, StoreError
from martlet.stores.sqlite import SqliteStore
from martlet.testing.sim_clock import SimClock
from martlet.testing.sim_store import SimStore, SimStoreState

_KEYS = st.sampled_from(["a", "a/", "a/1", "a/2", "ab", "b", "b/1", "~"])
_PREFIXES = st.sampled_from(["a", "a/", "b", "z", "~"])
_VALUES = st.binary(max_size=4)
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
        answers = [self.runner.run(_answer(call(store))) for store in (self.real, self.twin)]
        assert answers[0] == answers[1]
        return answers[0]

    @rule(
        compared=st.dictionaries(_KEYS, st.sampled_from(["right", "absent", "wrong"]), max_size=2),
        puts=st.dictionaries(_KEYS, _VALUES, max_size=3),
        deletes=st.sets(_KEYS, max_size=2),
        prefixes=st.sets(_PREFIXES, max_size=1),
        lease=st.none() | leases,
    )
    def commit(
        self,
        compared: dict[str, str],
        puts: dict[str, bytes],
        deletes: set[str],
        prefixes: set[str],
        lease: LeaseId | None,
    ) -> None:
        compares = {key: self._expected(key, kind) for key, kind in compared.items()}
        deletes = {key for key in deletes - puts.keys() if not any(key.startswith(prefix) for prefix in prefixes)}
        prefixes = {prefix for prefix in prefixes if not any(key.startswith(prefix) for key in puts)}
        deletes_in_order, prefixes_in_order = sorted(deletes), sorted(prefixes)
        self._both(
            lambda store: store.commit(compares, puts, deletes_in_order, delete_prefixes=prefixes_in_order, lease=lease)
        )

    def _expected(self, key: str, kind: str) -> int:
        entry = self.state.entries.get(key)
        present = entry.mod_revision if entry is not None else 0
        return {"right": present, "absent": 0, "wrong": present + 1}[kind]

    @rule(key=_KEYS)
    def get(self, key: str) -> None:
        self._both(lambda store: store.get(key))

    @rule(target=leases, ttl_ms=st.sampled_from([10, 20, 30]))
    def grant(self, ttl_ms: int) -> Any:
        return self._both(lambda store: store.grant(ttl_ms))

    @rule(lease=leases, key=_KEYS)
    def put_under_lease(self, lease: LeaseId, key: str) -> None:
        self._both(lambda store: store.commit({}, {key: b"leased"}, lease=lease))

    @rule(key=_KEYS)
    def put_without_lease(self, key: str) -> None:
        self._both(lambda store: store.commit({}, {key: b"free"}))

    @rule(target=leases, ttl_ms=st.sampled_from([10, 20]), keys=st.lists(_KEYS, min_size=1, max_size=2, unique=True))
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
        self._both(lambda store: _history(store, prefix, after, revision))

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
            assert listing.revision >= self.revision, "S2: the revision never goes back"
            self.revision = listing.revision


async def _answer(call: Coroutine[Any, Any, Any]) -> Any:
    """The result, or the error as a value that can be compared."""
    try:
        return await call
    except StoreError as error:
        return type(error), str(error)


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


TestTwoStores = TwoStores.TestCase
TestTwoStores.settings = settings(
    max_examples=25,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
