"""Reading answers: the error codes in them as exceptions, in the broker's own words where it gave some. No I/O."""

from collections.abc import Sequence
from typing import TypeVar

from martlet.base.errors import ERROR_TABLE, ApiError, ErrorCode, error_code

Result = TypeVar("Result")


def only(results: Sequence[Result]) -> Result:
    """The one answer to one question."""
    if len(results) != 1:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the broker gave {len(results)} answers to one question")
    return results[0]


def check(number: int, message: str | None, what: str, *, named: str | None = None) -> None:
    """Raise the error there is; a sentence of the broker that names the thing itself needs no more words of ours."""
    if number:
        code = error_code(number)
        if message and named and named in message:
            raise ApiError(code, message)
        raise ApiError(code, f"{what}: {message or ERROR_TABLE[code].text}")
