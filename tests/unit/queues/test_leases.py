"""Leases: shared by holder and instant, ended by time, their slots used again."""

from martlet.queues.leases import LeaseBook


def test_what_a_holder_gets_within_fifty_milliseconds_is_one_lease() -> None:
    book = LeaseBook()
    lease = book.open("ann", 1_001)
    lease.add(0, 4)
    assert book.open("ann", 1_050) is lease
    assert lease.deadline_ms == 1_050
    assert book.open("ann", 1_051) is not lease
    assert book.open("bob", 1_001) is not lease


def test_a_lease_ends_with_its_last_message_and_its_slot_is_used_again() -> None:
    book = LeaseBook()
    lease = book.open("ann", 1_000)
    lease.add(3, 4)
    book.leave(lease)
    assert book[lease.slot] is lease
    book.leave(lease)
    assert len(book) == 0
    assert book.next_deadline_ms() is None
    again = book.open("bob", 2_000)
    assert again.slot == lease.slot
    assert again.serial != lease.serial


def test_leases_end_in_the_order_of_their_deadlines() -> None:
    book = LeaseBook()
    for holder, deadline_ms in (("ann", 3_000), ("bob", 1_000), ("cid", 2_000)):
        book.open(holder, deadline_ms).add(0, 0)
    assert book.next_deadline_ms() == 1_000
    assert book.pop_ended(999) is None
    ended = [book.pop_ended(2_000) for _ in range(3)]
    assert [lease and lease.holder for lease in ended] == ["bob", "cid", None]


def test_a_holder_is_asked_for_all_it_has() -> None:
    book = LeaseBook()
    book.open("ann", 1_000).add(0, 4)
    book.open("ann", 2_000).add_stray(77)
    assert book.holders() == {"ann": 6}
    assert [lease.left for lease in book.of("ann")] == [5, 1]
    assert book.of("bob") == ()
