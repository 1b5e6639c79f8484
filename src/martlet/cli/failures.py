"""The one translation from exceptions to what the user sees: an exit code, a sentence and, where known, a next step.

A verb never catches to print; it lets the exception pass and `main` asks here. An exception this table does not know
is a bug and keeps its traceback.
"""

import errno
import re
from typing import NamedTuple

import click

from martlet.base.errors import (
    ApiError,
    DirectoryInUse,
    DiskFull,
    ErrorCode,
    InvariantViolation,
    MartletError,
    MembershipRefused,
    ProtocolViolation,
    StorageFailure,
)
from martlet.cli.exit_codes import ExitCode
from martlet.client.errors import ConnectionFailed, ConnectionLost, OutcomeUnknown, RequestTimedOut
from martlet.cluster.store import StoreError, StoreUnavailable


class Failure(NamedTuple):
    """How a command ends when it does not end well."""

    exit_code: ExitCode
    message: str
    next_step: str | None = None


class CommandFailed(MartletError):
    """A verb's own refusal, with its exit code and next step."""

    def __init__(self, exit_code: ExitCode, message: str, next_step: str | None = None) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.next_step = next_step


_EXIT_CODES: dict[ErrorCode, ExitCode] = {
    **dict.fromkeys(
        (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.UNKNOWN_TOPIC_ID,
            ErrorCode.RESOURCE_NOT_FOUND,
            ErrorCode.BROKER_ID_NOT_REGISTERED,
            ErrorCode.GROUP_ID_NOT_FOUND,
            ErrorCode.LOG_DIR_NOT_FOUND,
            ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        ),
        ExitCode.NOT_FOUND,
    ),
    **dict.fromkeys(
        (
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            ErrorCode.GROUP_AUTHORIZATION_FAILED,
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            ErrorCode.SASL_AUTHENTICATION_FAILED,
            ErrorCode.POLICY_VIOLATION,
            ErrorCode.TOPIC_DELETION_DISABLED,
        ),
        ExitCode.NOT_ALLOWED,
    ),
    **dict.fromkeys(
        (
            ErrorCode.TOPIC_ALREADY_EXISTS,
            ErrorCode.DUPLICATE_RESOURCE,
            ErrorCode.NON_EMPTY_GROUP,
            ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
            ErrorCode.REASSIGNMENT_IN_PROGRESS,
        ),
        ExitCode.CONFLICT,
    ),
    **dict.fromkeys(
        (
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            ErrorCode.INVALID_CONFIG,
            ErrorCode.INVALID_PARTITIONS,
            ErrorCode.INVALID_REPLICATION_FACTOR,
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            ErrorCode.INVALID_REQUIRED_ACKS,
            ErrorCode.INVALID_TIMESTAMP,
            ErrorCode.INVALID_GROUP_ID,
        ),
        ExitCode.USAGE,
    ),
    **dict.fromkeys(
        (
            ErrorCode.LEADER_NOT_AVAILABLE,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.NOT_COORDINATOR,
        ),
        ExitCode.NOT_REACHABLE,
    ),
    ErrorCode.REQUEST_TIMED_OUT: ExitCode.TIMEOUT,
}

_NEXT_STEPS: dict[ErrorCode, str] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "`martlet topic list` shows the topics, `martlet topic create` makes one",
    ErrorCode.TOPIC_ALREADY_EXISTS: "`martlet topic describe NAME` shows it; with --if-not-exists this is no error",
    ErrorCode.INVALID_REPLICATION_FACTOR: "`martlet status` shows how many brokers there are",
    ErrorCode.INVALID_CONFIG: "`martlet config get` lists the names and values in use, with --topic those of a topic",
    ErrorCode.MESSAGE_TOO_LARGE: "allow more with `martlet topic alter TOPIC --set max.message.bytes=N`, or send less",
    ErrorCode.OFFSET_OUT_OF_RANGE: "`martlet topic describe TOPIC` shows the offsets; --from earliest always works",
    ErrorCode.GROUP_ID_NOT_FOUND: "`martlet group list` shows the groups",
    ErrorCode.NON_EMPTY_GROUP: "`martlet group describe GROUP` shows who is connected; stop those consumers first",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "`martlet group describe GROUP` shows who reads the topic; stop them first",
    ErrorCode.KAFKA_STORAGE_ERROR: "see the broker's log and the free space of its disk",
    ErrorCode.UNSUPPORTED_VERSION: "broker and command differ in age; `martlet --version` shows that of the command",
}


def failure_of(error: BaseException) -> Failure | None:
    """What to say about an exception; None for one that is a bug of ours. A note on it is a better next step."""
    failure = _failure_of(error)
    notes = getattr(error, "__notes__", ())
    return failure._replace(next_step=notes[-1]) if failure is not None and notes else failure


def failure_of_usage(error: click.ClickException) -> Failure:
    """What to say about a command line that click refused, in the voice of all other errors."""
    message, guessed, guess = error.format_message().rstrip().rstrip(".").partition("Did you mean ")
    message = message.rstrip(" .(")
    if not message[:2].isupper():
        message = message[:1].lower() + message[1:]
    context = error.ctx if isinstance(error, click.UsageError) else None
    next_step = f"`{context.command_path} --help` shows what it takes" if context is not None else None
    if guessed:
        next_step = f"did you mean {guess.rstrip(')')}"
    return Failure(ExitCode(error.exit_code), message, next_step)


def _failure_of(error: BaseException) -> Failure | None:
    if isinstance(error, CommandFailed):
        return Failure(error.exit_code, str(error), error.next_step)
    if isinstance(error, ApiError):
        return Failure(_EXIT_CODES.get(error.code, ExitCode.FAILURE), error.detail, _NEXT_STEPS.get(error.code))
    if isinstance(error, ConnectionFailed | ConnectionLost):
        return Failure(ExitCode.NOT_REACHABLE, str(error))
    if isinstance(error, RequestTimedOut | TimeoutError):
        return Failure(ExitCode.TIMEOUT, str(error) or "no answer in time", "--timeout SECONDS waits longer")
    if isinstance(error, OutcomeUnknown):
        return Failure(ExitCode.FAILURE, str(error))
    if isinstance(error, ProtocolViolation):
        return Failure(ExitCode.NOT_REACHABLE, f"the peer does not speak the Kafka protocol: {error}")
    if isinstance(error, DiskFull):
        return Failure(ExitCode.FAILURE, str(error), "free some space, or choose another directory with --data")
    if isinstance(error, DirectoryInUse):
        return Failure(ExitCode.CONFLICT, str(error), "stop it first, or choose another directory with --data")
    if isinstance(error, StorageFailure):
        return Failure(ExitCode.FAILURE, str(error))
    if isinstance(error, MembershipRefused):
        return Failure(ExitCode.CONFLICT, str(error))
    if isinstance(error, StoreError):
        code = ExitCode.NOT_REACHABLE if isinstance(error, StoreUnavailable) else ExitCode.FAILURE
        return Failure(code, f"the metadata store: {error}")
    if isinstance(error, InvariantViolation):
        return None
    if isinstance(error, OSError):
        return _operating_system(error)
    return None


def _operating_system(error: OSError) -> Failure:
    words = error.strerror or str(error)
    where = f"{error.filename}: " if error.filename else ""
    if error.errno == errno.EADDRINUSE:
        # asyncio words it with a Python tuple; people know HOST:PORT.
        asked = re.search(r"\('([^']+)', (\d+)", words)
        sentence = f"cannot listen on {asked.group(1)}:{asked.group(2)}: address already in use" if asked else words
        return Failure(ExitCode.CONFLICT, sentence, "another broker may be running; choose another port or port 0")
    if error.errno in (errno.EACCES, errno.EPERM):
        return Failure(ExitCode.NOT_ALLOWED, f"{where}{words}")
    if error.errno == errno.ENOENT:
        return Failure(ExitCode.NOT_FOUND, f"{where}{words}")
    return Failure(ExitCode.FAILURE, f"{where}{words}")
