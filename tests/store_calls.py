"""What the comparisons of a metadata store with its simulated twin share: keys, commits, answers, histories."""

import asyncio
from collections.abc import Coroutine
from contextlib import aclosing
from typing import Any, NamedTuple

from hypothesis import strategies as st
from sim.store import SimStoreState

from martlet.cluster.store import Change, MetaStore, StoreError

KEYS = st.sampled_from(["a", "a/", "a/1", "a/2", "ab", "b", "b/1", "~"])
PREFIXES = st.sampled_from(["a", "a/", "b", "z", "~"])
_VALUES = st.binary(max_size=4)


class Commit(NamedTuple):
    """A drawn commit; each comparison is right, expects absence, or is wrong."""

    compared: dict[str, str]
    puts: dict[str, bytes]
    deletes: list[str]
    prefixes: list[str]

    def compares(self, state: SimStoreState) -> dict[str, int]:
        """The revisions to compare with, given what the twin holds now."""
        expected = {}
        for key, kind in self.compared.items():
            entry = state.entries.get(key)
            present = entry.mod_revision if entry is not None else 0
            expected[key] = {"right": present, "absent": 0, "wrong": present + 1}[kind]
        return expected


def _allowed(compared: dict[str, str], puts: dict[str, bytes], deletes: set[str], prefixes: set[str]) -> Commit:
    """What the port allows: no key is put and deleted, alone or by its prefix."""
    kept = {prefix for prefix in prefixes if not any(key.startswith(prefix) for key in puts)}
    single = {key for key in deletes - puts.keys() if not any(key.startswith(prefix) for prefix in kept)}
    return Commit(compared, puts, sorted(single), sorted(kept))


COMMITS = st.builds(
    _allowed,
    st.dictionaries(KEYS, st.sampled_from(["right", "absent", "wrong"]), max_size=2),
    st.dictionaries(KEYS, _VALUES, max_size=3),
    st.sets(KEYS, max_size=2),
    st.sets(PREFIXES, max_size=2),
)


async def answer(call: Coroutine[Any, Any, Any], *, with_text: bool) -> Any:
    """The result, or the error as a value that can be compared."""
    try:
        return await call
    except StoreError as error:
        facts = {name: value for name, value in vars(error).items() if isinstance(value, int)}
        return type(error), facts, str(error) if with_text else ""


async def history(store: MetaStore, prefix: str, after: int, up_to: int) -> list[Change]:
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
