"""Every API against every missing right: refused with the right code, and the handler hears nothing of it."""

from collections.abc import Iterator
from typing import Any

import pytest

from martlet.base.principals import Principal
from martlet.broker.handlers import SERVED
from martlet.security.authorizer import Authorizer
from martlet.security.gates.gate import Admission, Asker, TopicNames, checked_by_handler, open_to_all
from martlet.security.gates.table import GATES
from martlet.security.rules import Rule
from martlet.wire.api_keys import ApiKey
from martlet.wire.message_codec import errors_in
from tests.unit.security.gate_rows import LISTING, ROWS, TOPIC, TOPIC_ID, Row

ALICE = Principal("User", "alice")
NAMES = TopicNames({TOPIC_ID: TOPIC}.get, lambda name: name == TOPIC, lambda: [TOPIC])


def asker_with(rules: list[Rule], version: int) -> Asker:
    authorizer = Authorizer()
    authorizer.table.apply((), rules)
    return Asker(authorizer.viewer(ALICE, "10.0.0.1"), version, NAMES)


def admitted(row: Row, version: int, rules: list[Rule]) -> tuple[Admission, Asker]:
    asker = asker_with(rules, version)
    return GATES[row.key](row.request, asker), asker


def answer_of(row: Row, admission: Admission) -> Any:
    """The complete answer, the handler having nothing to say."""
    if admission.answer is not None:
        return admission.answer
    return admission.finish(row.response()) if admission.finish is not None else row.response()


def each_missing_right() -> Iterator[Any]:
    for number, row in enumerate(ROWS):
        for missing in range(len(row.needs)):
            yield pytest.param(row, missing, id=f"{row.key.name}-{number}-{missing}")


EVERY_ROW = pytest.mark.parametrize("row", [pytest.param(row, id=f"{row.key.name}-{n}") for n, row in enumerate(ROWS)])


def test_every_served_api_has_a_gate() -> None:
    assert {ApiKey(module.KEY) for module in SERVED} - set(GATES) == set()


def test_every_gate_is_open_or_stands_in_the_rows_of_this_test() -> None:
    open_ones = {key for key, gate in GATES.items() if gate in (open_to_all, checked_by_handler)}
    assert {row.key for row in ROWS} | LISTING | open_ones == set(GATES)
    assert open_ones == {
        *(ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE, ApiKey.API_VERSIONS),
        *(ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE),
    }


@EVERY_ROW
def test_with_every_right_the_request_reaches_the_handler_as_it_is(row: Row) -> None:
    for version in row.versions:
        admission, asker = admitted(row, version, [rule for rule, _ in row.needs])
        assert admission.request == row.request
        assert errors_in(answer_of(row, admission), version) == []
        assert asker.denials == []


@pytest.mark.parametrize(("row", "missing"), list(each_missing_right()))
def test_with_one_right_missing_the_code_is_its_own_and_the_handler_hears_nothing(row: Row, missing: int) -> None:
    code = row.needs[missing][1]
    for version in row.versions:
        held = [rule for number, (rule, _) in enumerate(row.needs) if number != missing]
        admission, asker = admitted(row, version, held)
        assert set(errors_in(answer_of(row, admission), version)) == {code}, f"v{version}"
        if admission.request is not None:
            assert "secret-topic" not in str(admission.request)
            assert "secret-new" not in str(admission.request)
        assert len(asker.denials) == 1


@EVERY_ROW
def test_gates_change_neither_the_request_nor_the_answer_they_are_given(row: Row) -> None:
    for version in row.versions:
        before, response = str(row.request), row.response()
        admission, _ = admitted(row, version, [])
        if admission.finish is not None:
            admission.finish(response)
        assert str(row.request) == before
        assert response == row.response()
