"""The simple assignor under any members and topics: complete, shared as needed, even, and stable."""

from hypothesis import given
from hypothesis import strategies as st

from martlet.groups.records import Partitions
from martlet.groups.share.assignor import assign
from tests.unit.groups.consumer.sim_topics import SimTopics

TOPICS = ("alpha", "beta", "gamma")
COUNTS = st.fixed_dictionaries({name: st.integers(1, 9) for name in TOPICS})
MEMBERS = st.dictionaries(
    st.integers(0, 30).map("m{:02}".format), st.sets(st.sampled_from([*TOPICS, "missing"]), min_size=1), max_size=14
)


def run(counts: dict[str, int], members: dict[str, set[str]], before: dict[str, Partitions]) -> dict[str, Partitions]:
    topics = SimTopics(**counts)
    views = {name: view for name in TOPICS if (view := topics.topic(name)) is not None}
    wanted = {name for names in members.values() for name in names}
    return assign(
        {member: sorted(names) for member, names in members.items()},
        {name: view for name, view in views.items() if name in wanted},
        before,
    )


@given(COUNTS, MEMBERS, MEMBERS)
def test_every_partition_has_as_many_members_as_it_is_to_have(
    counts: dict[str, int], earlier: dict[str, set[str]], members: dict[str, set[str]]
) -> None:
    topics = SimTopics(**counts)
    given_now = run(counts, members, run(counts, earlier, {}))
    for name in TOPICS:
        takers = [member for member, names in members.items() if name in names]
        for number in range(counts[name]):
            owners = [member for member, held in given_now.items() if (topics.id_of(name), number) in held]
            assert set(owners) <= set(takers)
            assert len(owners) == (-(-len(takers) // counts[name]) if takers else 0)


@given(COUNTS, MEMBERS, MEMBERS)
def test_no_member_has_two_fewer_than_one_whose_part_it_could_have(
    counts: dict[str, int], earlier: dict[str, set[str]], members: dict[str, set[str]]
) -> None:
    topics = SimTopics(**counts)
    name_of = {topics.id_of(name): name for name in TOPICS}
    given_now = run(counts, members, run(counts, earlier, {}))
    for poor, held in given_now.items():
        for rich, more in given_now.items():
            could_have = {one for one in more - held if name_of[one[0]] in members[poor]}
            assert len(more) < len(held) + 2 or not could_have, (poor, rich)
    for member, held in given_now.items():
        assert held or members[member] == {"missing"}, f"{member} has nothing"


@given(COUNTS, MEMBERS)
def test_without_a_change_nothing_moves(counts: dict[str, int], members: dict[str, set[str]]) -> None:
    before = run(counts, members, {})
    assert run(counts, members, before) == before
