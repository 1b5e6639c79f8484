"""Plain and transactional commits in any order: what counts is what stands last in the log of all that is committed."""

from hypothesis import given
from hypothesis import strategies as st

from martlet.groups.offsets.table import OffsetTable
from martlet.groups.records import OffsetCommitted, OffsetPending, OffsetRemoved, OffsetsDecided

PARTITIONS = st.integers(0, 1)
PRODUCERS = st.integers(1, 3)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("plain"), PARTITIONS),
        st.tuples(st.just("stage"), PARTITIONS, PRODUCERS),
        st.tuples(st.just("commit"), PRODUCERS),
        st.tuples(st.just("abort"), PRODUCERS),
        st.tuples(st.just("remove"), PARTITIONS),
    ),
    max_size=30,
)


@given(STEPS)
def test_an_offset_counts_when_no_later_record_does(steps: list[tuple[str, int] | tuple[str, int, int]]) -> None:
    table = OffsetTable()
    main: dict[int, int] = {}
    """By partition the place in the log of what counts; places serve as offsets and times."""
    staged: dict[int, dict[int, int]] = {}
    for place, step in enumerate(steps):
        kind, subject = step[:2]
        if kind in ("plain", "stage"):
            commit = OffsetCommitted("g", "t", subject, place, committed_at_ms=place)
            if len(step) == 3:
                staged.setdefault(step[2], {})[subject] = place
                table.replay(OffsetPending(step[2], 0, commit))
            else:
                main[subject] = place
                table.replay(commit)
        elif kind == "remove":
            main.pop(subject, None)
            for places in staged.values():
                places.pop(subject, None)
            table.replay(OffsetRemoved("g", "t", subject))
        else:
            for partition, staged_at in staged.pop(subject, {}).items():
                if kind == "commit" and staged_at > main.get(partition, -1):
                    main[partition] = staged_at
            table.replay(OffsetsDecided(subject, 0, kind == "commit"))
        committed = {partition: one.offset for partition, one in table.of_topic("g", "t").items()}
        assert committed == main
        for partition in (0, 1):
            assert table.pending.holds("g", "t", partition) == any(partition in places for places in staged.values())
        assert len(table.pending) == sum(1 for places in staged.values() if places)
        assert ("g" in table) == bool(main or any(staged.values()))
