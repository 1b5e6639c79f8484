"""Priority: the column serves what the policy says, and every message within the bound that the module proves."""

from hypothesis import given
from hypothesis import strategies as st

from martlet.queues.priority import FAIR_EVERY, LEVELS, PriorityColumn

TRAFFIC = st.lists(
    st.one_of(
        st.lists(st.integers(0, 9), min_size=1, max_size=12).map(bytes),
        st.sampled_from([bytes([9]) * 20, bytes([0]) * 20]),
        st.integers(1, 12),
        st.just("back"),
    ),
    max_size=60,
)
"""What arrives (levels), how many are taken, and a message that comes back."""


class Policy:
    """The policy in its plainest form."""

    def __init__(self) -> None:
        self.waiting: list[tuple[int, int]] = []
        self.since_fair = 0
        self.highest = -1

    def next(self, aged_before: int) -> tuple[int, int]:
        self.since_fair += 1
        overtaken = sorted(entry for entry in self.waiting if entry[1] < self.highest)
        if self.since_fair >= FAIR_EVERY and overtaken and overtaken[0][0] < aged_before:
            chosen = overtaken[0]
            self.since_fair, self.highest = 0, -1
        else:
            chosen = min(self.waiting, key=lambda entry: (-entry[1], entry[0]))
            self.highest = max(self.highest, chosen[1])
        self.waiting.remove(chosen)
        return chosen


@given(TRAFFIC, st.sampled_from([0, 30, 1 << 40]))
def test_the_column_serves_what_the_policy_says(traffic: list[bytes | int | str], aged_before: int) -> None:
    column, policy, end = PriorityColumn(0), Policy(), 0
    out: list[tuple[int, int]] = []
    for event in traffic:
        if isinstance(event, bytes):
            column.extend(event)
            policy.waiting += [(end + at, level) for at, level in enumerate(event)]
            end += len(event)
        elif isinstance(event, int):
            expected = [policy.next(aged_before) for _ in range(min(event, len(policy.waiting)))]
            assert column.take(event, aged_before) == [offset for offset, _ in expected]
            out += expected
        elif out:
            offset, level = out.pop(0)
            column.give_back(offset)
            policy.waiting.append((offset, level))
        levels = [level for _, level in policy.waiting]
        assert column.waiting() == tuple(levels.count(level) for level in range(LEVELS))


@given(TRAFFIC)
def test_every_message_is_served_within_the_bound(traffic: list[bytes | int | str]) -> None:
    column, end = PriorityColumn(0), 0
    deadline_of: dict[int, int] = {}
    delivered = 0
    for event in [*traffic, bytes([9]) * 2_000, 1_900]:
        if isinstance(event, bytes):
            for at, level in enumerate(event):
                if level < 9:
                    # Which are the older ones that wait: those of level 9 are not among them.
                    deadline_of[end + at] = delivered + FAIR_EVERY * (len(deadline_of) + 2)
            column.extend(event)
            end += len(event)
        elif isinstance(event, int):
            for offset in column.take(event, 1 << 40):
                delivered += 1
                assert delivered <= deadline_of.pop(offset, delivered)
    assert all(deadline >= delivered for deadline in deadline_of.values())
