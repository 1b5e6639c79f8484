"""What etcd says when it does not do what was asked, and what each of its errors means for us. Pure.

The question that matters is whether the request may have had an effect. An error that etcd raises before it proposes
the request to its cluster leaves no doubt; of every other one we say that the outcome is unknown.

Proved by: tests/unit/stores/test_etcd_gateway.py, tests/stores/test_etcd_outages.py
"""

from enum import Enum, auto
from http import HTTPStatus
from typing import Final, NamedTuple

from martlet.cluster.store import LeaseLost, StoreError, StoreRefused
from martlet.stores.etcd_http import HttpAnswer
from martlet.stores.etcd_json import BadAnswer, as_number, unpack

_INVALID_ARGUMENT: Final = 3
_NOT_FOUND: Final = 5
_PERMISSION_DENIED: Final = 7
_RESOURCE_EXHAUSTED: Final = 8
_FAILED_PRECONDITION: Final = 9
_OUT_OF_RANGE: Final = 11
_UNIMPLEMENTED: Final = 12
_DATA_LOSS: Final = 15
_UNAUTHENTICATED: Final = 16

NO_SPACE_ADVICE: Final = (
    "it has no space left and takes no writes: compact its history, defragment it, then disarm the alarm NOSPACE "
    "(and let it compact by itself from now on: --auto-compaction-retention)"
)


class Meaning(Enum):
    """What an error lets us conclude."""

    UNKNOWN = auto()
    """It may have happened, or may still."""
    BUSY = auto()
    """Nothing happened; another member, or the same one later, may do it."""
    TOKEN = auto()
    """Nothing happened; a new token will help."""
    REFUSED = auto()
    """Nothing happened, and only a person can change that."""
    NO_GATEWAY = auto()
    """Nothing happened; this member cannot do what the others may."""
    LEASE_LOST = auto()
    COMPACTED = auto()
    NO_SPACE = auto()
    """It may have happened: a commit that crosses the limit is carried out and reported as an error."""


class EtcdFault(NamedTuple):
    """An error as etcd gave it."""

    meaning: Meaning
    text: str

    def error(self, endpoint: object) -> StoreError:
        """For the meanings that leave nothing to try."""
        if self.meaning is Meaning.LEASE_LOST:
            return LeaseLost("the lease has expired or was revoked")
        return StoreRefused(f"etcd at {endpoint}: {self.text}")


def fault_of(answer: HttpAnswer) -> EtcdFault:
    """Read an answer that is no success."""
    try:
        message = unpack(answer.body)
        code = as_number(message.get("code"), "code")
        text = str(message.get("message") or message.get("error") or "no reason given")
    except BadAnswer:
        return _foreign(answer)
    return EtcdFault(*_understood(code, text.removeprefix("etcdserver: ")))


def _understood(code: int, text: str) -> tuple[Meaning, str]:
    known = _BY_TEXT.get((code, text))
    if known is not None:
        meaning, advice = known
        return meaning, f"{text}; {advice}" if advice else text
    if code == _NOT_FOUND and "lease not found" in text:
        return Meaning.LEASE_LOST, text
    if code == _RESOURCE_EXHAUSTED:
        return (Meaning.NO_SPACE, NO_SPACE_ADVICE) if "space exceeded" in text else (Meaning.BUSY, text)
    if code == _OUT_OF_RANGE and "compacted" in text:
        return Meaning.COMPACTED, text
    if code in (_INVALID_ARGUMENT, _FAILED_PRECONDITION, _UNIMPLEMENTED):
        return Meaning.REFUSED, f"the request was refused ({text})"
    if code == _PERMISSION_DENIED:
        return Meaning.REFUSED, f"{text}; the user needs a role with the right to read and write all keys of the prefix"
    if code == _DATA_LOSS:
        return Meaning.REFUSED, f"{text}; its members disagree: restore it before any broker starts"
    if code == _UNAUTHENTICATED:
        return Meaning.TOKEN, text
    return Meaning.UNKNOWN, text


_LIMITS_ADVICE: Final = "Martlet needs etcd's default limits: --max-txn-ops 128, --max-request-bytes 1572864"
_BY_TEXT: Final[dict[tuple[int, str], tuple[Meaning, str]]] = {
    (_INVALID_ARGUMENT, "user name is empty"): (Meaning.TOKEN, "it asks for user and password, and none were given"),
    (_INVALID_ARGUMENT, "user name not found"): (Meaning.TOKEN, "the user is gone"),
    (_INVALID_ARGUMENT, "revision of auth store is old"): (Meaning.TOKEN, ""),
    (_INVALID_ARGUMENT, "authentication failed, invalid user ID or password"): (
        Meaning.REFUSED,
        "check the user and the password given to the broker",
    ),
    (_INVALID_ARGUMENT, "too many operations in txn request"): (Meaning.REFUSED, _LIMITS_ADVICE),
    (_INVALID_ARGUMENT, "request is too large"): (Meaning.REFUSED, _LIMITS_ADVICE),
}

NOT_ENABLED_TEXT: Final = "authentication is not enabled"


def _foreign(answer: HttpAnswer) -> EtcdFault:
    """No JSON: not etcd's gateway speaks, but etcd without it, or a proxy in between."""
    if answer.status == HTTPStatus.NOT_FOUND:
        return EtcdFault(
            Meaning.NO_GATEWAY,
            "it has no JSON gateway; start etcd without --enable-grpc-gateway=false",
        )
    text = answer.body[:80].decode("ascii", "replace").strip()
    return EtcdFault(Meaning.UNKNOWN, f"HTTP status {answer.status} ({text})")
