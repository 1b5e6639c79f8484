"""An overlay behaves like a copy of the dictionary below it, and leaves that one alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from martlet.groups.classic.overlay import Overlay

KEYS = st.integers(0, 6)
CHANGES = st.lists(st.tuples(KEYS, st.one_of(st.none(), st.integers())), max_size=30)


@given(base=st.dictionaries(KEYS, st.integers()), changes=CHANGES)
def test_an_overlay_is_a_copy_that_was_not_made(base: dict[int, int], changes: list[tuple[int, int | None]]) -> None:
    before, plain, overlay = dict(base), dict(base), Overlay(base)
    for key, value in changes:
        if value is None:
            assert overlay.pop(key, None) == plain.pop(key, None)
        else:
            overlay[key] = plain[key] = value
        assert list(overlay.items()) == list(plain.items())
        assert len(overlay) == len(plain)
        assert (key in overlay) == (key in plain)
        assert repr(overlay) == repr(plain)
    assert base == before


def test_an_overlay_refuses_to_remove_or_find_what_is_not_there() -> None:
    overlay = Overlay({1: "one"})
    del overlay[1]
    for key in (1, 2):
        with pytest.raises(KeyError):
            del overlay[key]
        with pytest.raises(KeyError):
            overlay[key]
