"""Exceptions to exit codes and sentences: the whole table."""

import errno

import pytest

from martlet.base.errors import (
    ERROR_TABLE,
    ApiError,
    DiskFull,
    ErrorCode,
    InvariantViolation,
    ProtocolViolation,
    StorageFailure,
)
from martlet.cli.exit_codes import MEANINGS, ExitCode, epilog
from martlet.cli.failures import CommandFailed, failure_of
from martlet.client.errors import ConnectionFailed, ConnectionLost, OutcomeUnknown, RequestTimedOut, TopicMissing


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [
        (TopicMissing("t"), ExitCode.NOT_FOUND),
        (ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED), ExitCode.NOT_ALLOWED),
        (ApiError(ErrorCode.TOPIC_ALREADY_EXISTS), ExitCode.CONFLICT),
        (ApiError(ErrorCode.INVALID_CONFIG), ExitCode.USAGE),
        (ApiError(ErrorCode.REQUEST_TIMED_OUT), ExitCode.TIMEOUT),
        (ApiError(ErrorCode.UNKNOWN_SERVER_ERROR), ExitCode.FAILURE),
        (ConnectionFailed("x"), ExitCode.NOT_REACHABLE),
        (ConnectionLost("x"), ExitCode.NOT_REACHABLE),
        (RequestTimedOut("x"), ExitCode.TIMEOUT),
        (TimeoutError(), ExitCode.TIMEOUT),
        (OutcomeUnknown("x"), ExitCode.FAILURE),
        (ProtocolViolation("x"), ExitCode.NOT_REACHABLE),
        (StorageFailure("x"), ExitCode.FAILURE),
        (DiskFull("x"), ExitCode.FAILURE),
        (OSError(errno.EADDRINUSE, "Address already in use"), ExitCode.CONFLICT),
        (PermissionError(errno.EACCES, "Permission denied", "data"), ExitCode.NOT_ALLOWED),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "f"), ExitCode.NOT_FOUND),
        (CommandFailed(ExitCode.CHECK_FAILED, "x"), ExitCode.CHECK_FAILED),
    ],
)
def test_every_family_of_failures_has_its_exit_code(error: Exception, exit_code: ExitCode) -> None:
    failure = failure_of(error)
    assert failure is not None
    assert failure.exit_code == exit_code
    assert failure.message


def test_every_protocol_error_has_an_exit_code_and_a_sentence() -> None:
    for code in ERROR_TABLE:
        failure = failure_of(ApiError(code))
        assert failure is not None
        assert failure.exit_code != ExitCode.OK
        assert failure.message == ERROR_TABLE[code].text


def test_a_bug_of_ours_keeps_its_traceback() -> None:
    assert failure_of(InvariantViolation("LOG-1")) is None
    assert failure_of(KeyError("x")) is None


def test_every_exit_code_is_documented_in_the_help() -> None:
    assert set(MEANINGS) == set(ExitCode)
    for code in ExitCode:
        assert f"{code.value:>3}  {MEANINGS[code]}" in epilog()
