"""The error table is complete and agrees with Kafka's, and each family of exceptions carries what its fate needs."""

import kio.schema.errors
import pytest

from martlet.base.errors import (
    ERROR_TABLE,
    ApiError,
    DiskFull,
    ErrorCode,
    InvariantViolation,
    MartletError,
    ProtocolViolation,
    StorageFailure,
    error_code,
)
from martlet.base.invariant import invariant


def test_every_code_has_a_row_and_every_row_a_code() -> None:
    assert set(ERROR_TABLE) == set(ErrorCode)


@pytest.mark.parametrize("code", ErrorCode, ids=lambda code: code.name)
def test_every_text_is_a_sentence_of_ours(code: ErrorCode) -> None:
    text = ERROR_TABLE[code].text
    assert text.endswith(".")
    assert text[0].isupper() or text.startswith("acks")
    assert "\n" not in text


@pytest.mark.parametrize("code", ErrorCode, ids=lambda code: code.name)
def test_names_numbers_and_retriability_are_kafkas(code: ErrorCode) -> None:
    theirs = kio.schema.errors.ErrorCode(int(code))
    assert theirs.name == code.name.lower()
    assert theirs.retriable == ERROR_TABLE[code].retriable


def test_errors_that_demand_new_metadata_are_retriable() -> None:
    assert all(info.retriable for info in ERROR_TABLE.values() if info.refresh_metadata)


def test_an_api_error_carries_its_code_and_its_sentence() -> None:
    plain = ApiError(ErrorCode.INVALID_CONFIG)
    assert plain.detail == str(plain) == ERROR_TABLE[ErrorCode.INVALID_CONFIG].text
    assert not plain.retriable
    detailed = ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "broker 2 leads orders-0")
    assert detailed.detail == str(detailed) == "broker 2 leads orders-0"
    assert detailed.retriable


def test_an_unknown_number_from_the_wire_reads_as_unknown_server_error() -> None:
    assert error_code(3) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert error_code(9_999) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_the_four_families_stay_apart() -> None:
    families = (ApiError, ProtocolViolation, StorageFailure, InvariantViolation)
    assert all(family.__base__ is MartletError for family in families)
    assert issubclass(DiskFull, StorageFailure)


def test_an_invariant_that_holds_is_silent_and_a_broken_one_names_itself() -> None:
    invariant([1], "a list with something in it is true")
    with pytest.raises(InvariantViolation, match="I3: offsets rise"):
        invariant(0, "I3: offsets rise")
