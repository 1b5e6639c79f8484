"""A mapping over another one that keeps its changes to itself, made in constant time.

Drafts of a group are built of these: a handler can change a draft of a thousand members without copying one of them.
Invariant: (O1) entries come in the order in which a plain dictionary would have them after the same changes.
"""

from collections.abc import Iterator, Mapping, MutableMapping
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Overlay(MutableMapping[K, V]):
    """Reads fall through to `base`, writes stay here; `base` must not change meanwhile."""

    __slots__ = ("_added", "_base", "_gone", "_replaced")

    def __init__(self, base: Mapping[K, V]) -> None:
        self._base = base
        self._replaced: dict[K, V] = {}
        self._gone: set[K] = set()
        self._added: dict[K, V] = {}

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
