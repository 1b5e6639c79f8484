"""A draft shows what its records will do and leaves the state alone; an overlay is a copy that was not made."""

from collections.abc import MutableMapping
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from martlet.coordinator.draft import Draft, Overlay
from martlet.coordinator.result import Answer, CancelTimer, Parked, Result, SetTimer

KEYS = st.integers(0, 6)
CHANGES = st.lists(st.tuples(KEYS, st.one_of(st.none(), st.integers())), max_size=30)


@dataclass
class Counts:
    """A state that can be drafted: how often each word was recorded."""

    by_word: MutableMapping[str, int] = field(default_factory=dict)

    def draft(self) -> "Counts":
        return Counts(Overlay(self.by_word))

    def replay(self, word: str) -> None:
        self.by_word[word] = self.by_word.get(word, 0) + 1


def test_a_draft_sees_its_records_and_the_state_does_not() -> None:
    counts = Counts({"one": 1})
    draft: Draft[Counts, str] = Draft(counts, now_ms=7)
    draft.record("one", "two")
    assert dict(draft.state.by_word) == {"one": 2, "two": 1}
    assert draft.before is counts
    assert counts.by_word == {"one": 1}
    for word in draft.records:
        counts.replay(word)
    assert counts.by_word == dict(draft.state.by_word)


def test_the_last_record_is_noted_and_not_applied() -> None:
    draft: Draft[Counts, str] = Draft(Counts(), now_ms=7)
    draft.record_last("one")
    assert draft.records == ["one"]
    assert not draft.state.by_word


def test_the_result_of_a_draft_has_everything_that_was_noted() -> None:
    draft: Draft[Counts, str] = Draft(Counts(), now_ms=7)
    draft.record("one")
    draft.set_timer(("tick",), 5)
    draft.cancel_timers(("a",), ("b",))
    draft.answer(("wait",), "answered")
    draft.effects.append("effect")
    timers: list[SetTimer | CancelTimer] = [SetTimer(("tick",), 5), CancelTimer(("a",)), CancelTimer(("b",))]
    expected = Result("response", ["one"], timers, [Answer(("wait",), "answered")], ["effect"])
    assert draft.result("response") == expected
    parked = Parked(("wait",), "replaced")
    assert draft.result(parked).response is parked


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
        assert overlay.has_other_keys == (overlay.keys() != before.keys())
    assert base == before


def test_an_overlay_refuses_to_remove_or_find_what_is_not_there() -> None:
    overlay = Overlay({1: "one"})
    del overlay[1]
    for key in (1, 2):
        with pytest.raises(KeyError):
            del overlay[key]
        with pytest.raises(KeyError):
            overlay[key]
