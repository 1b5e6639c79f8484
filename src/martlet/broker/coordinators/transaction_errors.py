"""Which of the errors of transactions a client of an old version knows, and what it gets instead.

An older client ends, or waits for ever, at a code that came after it. Each API says from which of its versions on its
clients know that a producer is fenced, and that a transaction can only be aborted.
"""

from typing import Final, NamedTuple

from martlet.base.errors import ErrorCode

NEVER: Final = 1 << 15
"""A version that no API has."""


class KnownErrors(NamedTuple):
    """Of one API: the first versions whose clients know each."""

    fenced_since: int
    abortable_since: int

    def code(self, code: ErrorCode, version: int) -> ErrorCode:
        """The error in the words of that version."""
        if code is ErrorCode.PRODUCER_FENCED and version < self.fenced_since:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if code is ErrorCode.TRANSACTION_ABORTABLE and version < self.abortable_since:
            return ErrorCode.INVALID_TXN_STATE
        return code
