"""A pool of things to be spread over members: evenly, with as few moves as that takes, and near to where they are kept.

The things are partitions for one assignor and partition numbers for the other. First come even loads, then racks, then
staying where one is. Nothing here knows about topics.

Invariants:
GRP-17 After `level` the loads of the pool's members are as even as what they carry from elsewhere allows.
GRP-18 A pool that is level and whose racks cannot be matched better is left as it is.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

from martlet.base.ids import TopicId

T = TypeVar("T", int, tuple[TopicId, int])

_RACK_PASSES_MAX = 8


class Pool(Generic[T]):
    """Things and the members that may hold them; `held` is the outcome."""

    __slots__ = ("_racks_of", "changed", "free", "held", "members")

    def __init__(self, members: Sequence[str], racks_of: Callable[[T], frozenset[str]]) -> None:
        self.members = members
        """In the order in which they are served."""
        self.held: dict[str, list[T]] = {member: [] for member in members}
        self.free: list[T] = []
        """Not held by any member, in the order in which they are dealt out."""
        self.changed: set[str] = set()
        """Members that hold something else than at the start."""
        self._racks_of: Callable[[T], frozenset[str]] = racks_of

    def level(self, elsewhere: Mapping[str, int], racks: Mapping[str, str], *, in_runs: bool = False) -> bool:
        """Deal out what is free and even out the rest; says whether anything moved.

        `elsewhere` is what members carry outside this pool. `in_runs` gives a member neighbouring things.
        """
        held = [len(self.held[member]) for member in self.members]
        total = sum(held) + len(self.free)
        quotas = _quotas([elsewhere.get(member, 0) for member in self.members], held, total)
        needy: list[tuple[str, int]] = []
        for member, count, quota in zip(self.members, held, quotas, strict=True):
            if count > quota:
                self._give_up(member, count - quota, racks.get(member))
            elif count < quota:
                needy.append((member, quota - count))
        if not needy:
            return False
        self.changed.update(member for member, _ in needy)
        if racks:
            needy = self._deal_by_rack(needy, racks)
        if in_runs:
            self._deal_in_runs(needy)
        else:
            self._deal_in_turn(needy)
        return True

    def match_racks(self, racks: Mapping[str, str], *, uneven: bool) -> None:
        """Exchange things so that more of them are held in a rack they are kept in; loads stay level.

        With `uneven`, a member that holds one more than another may also hand it over for nothing.
        """
        if not racks:
            return
        for _ in range(_RACK_PASSES_MAX):
            if not _RackPass(self, racks, self._racks_of, uneven).run():
                return

    def _give_up(self, member: str, count: int, rack: str | None) -> None:
        """The things kept in other racks go first, then the last ones."""
        kept = self.held[member]
        kept.sort()
        if rack is not None:
            kept.sort(key=lambda thing: self._is_far(thing, rack))
        self.free += kept[-count:]
        del kept[-count:]
        self.changed.add(member)

    def _is_far(self, thing: T, rack: str) -> bool:
        racks = self._racks_of(thing)
        return bool(racks) and rack not in racks

    def _deal_by_rack(self, needy: Iterable[tuple[str, int]], racks: Mapping[str, str]) -> list[tuple[str, int]]:
        """Give members what is kept in their rack; returns who still needs how many."""
        self.free.sort()
        near: dict[str, list[T]] = {}
        for thing in reversed(self.free):
            for rack in self._racks_of(thing):
                near.setdefault(rack, []).append(thing)
        given: set[T] = set()
        unserved: list[tuple[str, int]] = []
        for member, missing in needy:
            choice = near.get(racks.get(member, ""), [])
            while missing and choice:
                thing = choice.pop()
                if thing not in given:
                    given.add(thing)
                    self.held[member].append(thing)
                    missing -= 1
            if missing:
                unserved.append((member, missing))
        self.free = [thing for thing in self.free if thing not in given]
        return unserved

    def _deal_in_turn(self, needy: list[tuple[str, int]]) -> None:
        """One each, round and round: neighbours, which are often busy together, go to different members."""
        self.free.sort(reverse=True)
        while needy:
            for member, _ in needy:
                self.held[member].append(self.free.pop())
            needy = [(member, missing - 1) for member, missing in needy if missing > 1]

    def _deal_in_runs(self, needy: list[tuple[str, int]]) -> None:
        self.free.sort(reverse=True)
        for member, missing in needy:
            for _ in range(missing):
                self.held[member].append(self.free.pop())


class _RackPass(Generic[T]):
    """One round of exchanges, each of which brings at least one thing home and takes none away from home."""

    def __init__(
        self, pool: Pool[T], racks: Mapping[str, str], racks_of: Callable[[T], frozenset[str]], uneven: bool
    ) -> None:
        self._pool: Pool[T] = pool
        self._racks = racks
        self._racks_of: Callable[[T], frozenset[str]] = racks_of
        self._holder: dict[T, str] = {thing: member for member, things in pool.held.items() for thing in things}
        self._in_rack: dict[str, list[str]] = {}
        for member in pool.members:
            if member in racks:
                self._in_rack.setdefault(racks[member], []).append(member)
        loads = [len(things) for things in pool.held.values()]
        self._low = min(loads, default=0) if uneven and max(loads, default=0) - min(loads, default=0) == 1 else -1
        self._partners: dict[tuple[str, str], list[T]] = {}

    def run(self) -> bool:
        moved = False
        for member in self._pool.members:
            rack = self._racks.get(member)
            if rack is None:
                continue
            for thing in sorted(self._pool.held[member]):
                homes = self._racks_of(thing)
                if homes and rack not in homes and self._holder[thing] == member:
                    moved |= any(self._bring_home(thing, member, home) for home in sorted(homes))
        return moved

    def _bring_home(self, thing: T, member: str, home: str) -> bool:
        if self._holder[thing] != member:
            return False
        held = self._pool.held
        if self._low >= 0 and len(held[member]) > self._low:
            for other in self._in_rack.get(home, ()):
                if len(held[other]) == self._low:
                    self._move(thing, other)
                    return True
        rack = self._racks[member]
        partners = self._partners.get((home, rack))
        if partners is None:
            partners = self._partners[home, rack] = self._partners_in(home, rack)
        while partners:
            partner = partners.pop()
            other = self._holder[partner]
            if self._racks.get(other) == home:
                self._move(thing, other)
                self._move(partner, member)
                return True
        return False

    def _partners_in(self, home: str, rack: str) -> list[T]:
        """Things held in the rack `home` that lose nothing by going to `rack`."""
        found = []
        for member in self._in_rack.get(home, ()):
            for thing in self._pool.held[member]:
                homes = self._racks_of(thing)
                if home not in homes or rack in homes:
                    found.append(thing)
        found.sort(reverse=True)
        return found

    def _move(self, thing: T, to: str) -> None:
        member = self._holder[thing]
        self._pool.held[member].remove(thing)
        self._pool.held[to].append(thing)
        self._holder[thing] = to
        self._pool.changed.update((member, to))


def _quotas(elsewhere: Sequence[int], held: Sequence[int], total: int) -> list[int]:
    """How many of `total` things each member gets, so that loads are level; who holds many keeps the odd ones."""
    if not elsewhere:
        return []
    filled, below = 0, 0
    for count in sorted(elsewhere):
        if filled and filled * count - below > total:
            break
        filled, below = filled + 1, below + count
    low, odd = divmod(total + below, filled)
    quotas = [max(0, low - count) for count in elsewhere]
    if odd:
        may_have_more = [place for place, count in enumerate(elsewhere) if count <= low]
        may_have_more.sort(key=lambda place: held[place] <= quotas[place])
        for place in may_have_more[:odd]:
            quotas[place] += 1
    return quotas
