"""A holder stops acting on its lease before the store can let it run out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from martlet.base.errors import InvariantViolation
from martlet.cluster.leases import LeaseTerm


def test_the_deadline_counts_from_before_the_grant_was_sent_less_a_margin() -> None:
    term = LeaseTerm(3_000, sent_at_ms=100)
    assert term.deadline_ms == 100 + 3_000 - 600
    assert term.is_held(term.deadline_ms - 1)
    assert not term.is_held(term.deadline_ms)


def test_the_margin_is_a_second_at_most() -> None:
    assert LeaseTerm(60_000, sent_at_ms=0).deadline_ms == 59_000


def test_a_renewal_counts_from_its_sending_not_from_its_answer() -> None:
    term = LeaseTerm(10_000, sent_at_ms=0)
    assert term.renew_at_ms == 3_333
    term.renewed(sent_at_ms=3_400)
    assert term.deadline_ms == 12_400
    assert term.renew_at_ms == 3_400 + 3_333


def test_answers_that_overtake_each_other_do_not_move_the_deadline_back() -> None:
    term = LeaseTerm(10_000, sent_at_ms=0)
    term.renewed(sent_at_ms=5_000)
    term.renewed(sent_at_ms=4_000)
    assert term.deadline_ms == 14_000


def test_a_renewal_answered_after_the_deadline_lets_the_holder_go_on() -> None:
    term = LeaseTerm(2_000, sent_at_ms=0)
    assert not term.is_held(5_000)
    term.renewed(sent_at_ms=4_500)
    assert term.is_held(5_000)


def test_a_lost_lease_never_comes_back() -> None:
    term = LeaseTerm(2_000, sent_at_ms=0)
    term.lost()
    term.renewed(sent_at_ms=100)
    assert not term.is_held(101)


def test_a_lease_of_no_time_is_a_mistake() -> None:
    with pytest.raises(InvariantViolation):
        LeaseTerm(0, sent_at_ms=0)


@given(
    ttl_ms=st.integers(1, 60_000),
    renewals=st.lists(st.tuples(st.integers(0, 20_000), st.integers(0, 5_000), st.integers(0, 5_000)), max_size=8),
)
def test_the_holder_never_outlives_the_stores_view(ttl_ms: int, renewals: list[tuple[int, int, int]]) -> None:
    """The store starts the time when a renewal arrives, if the lease is alive then; the answer may take long."""
    now = 0
    term = LeaseTerm(ttl_ms, sent_at_ms=now)
    store_expiry = now + ttl_ms
    for pause, way_there, way_back in renewals:
        now += pause
        sent = now
        now += way_there
        if now >= store_expiry:
            term.lost()
        else:
            store_expiry = now + ttl_ms
            term.renewed(sent_at_ms=sent)
        now += way_back
        assert not term.is_held(store_expiry)
