"""Regular expressions over topic names, in RE2 syntax: linear in time whatever the pattern, and bounded in memory.

The only importer of the RE2 library, and only when a group uses an expression. An expression must match the whole name,
as in Kafka. What is wrong with an expression is said in the error.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from martlet.base.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from typing import Protocol

    class Pattern(Protocol):
        """The one method of a compiled expression that is used here."""

        def fullmatch(self, text: bytes) -> object | None: ...


REGEX_LENGTH_MAX: Final = 8_192
"""Characters. Topic names have at most 249; longer expressions are lists of names, which belong in the other field."""
_PROGRAM_BYTES_MAX: Final = 32 << 10
"""An expression that needs a larger program (many counts, say) is refused: the time to compile it grows with the square
of its size, and the time to match a name with its size when the states do not fit into the memory for them."""
_COUNTS_MAX: Final = 500
"""All counts of an expression together; no name is that long, and already reading more of them takes long."""
_COUNT: Final = re.compile(r"\{(?:\d{0,9},)?(\d{1,9})")
_STATES_BYTES_MAX: Final = 8 << 20
"""For what the library remembers while it matches; enough for every program of that size on names of topics."""
_COMPILED_MAX: Final = 16


def check_regex(regex: str) -> None:
    """Refuse what is no expression, or one too large."""
    if len(regex) > REGEX_LENGTH_MAX:
        raise ApiError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex has {len(regex)} characters; at most {REGEX_LENGTH_MAX} are allowed.",
        )
    if sum(map(int, _COUNT.findall(regex))) > _COUNTS_MAX:
        raise ApiError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex {regex[:200]!r}: pattern too large, its counts add up to more than {_COUNTS_MAX}.",
        )
    _compile(regex)


def matching_topics(regex: str, names: Iterable[str]) -> tuple[str, ...]:
    """The names that the expression matches from end to end, sorted."""
    pattern = _compile(regex)
    return tuple(sorted(name for name in names if pattern.fullmatch(name.encode()) is not None))


@lru_cache(maxsize=_COMPILED_MAX)
def _compile(regex: str) -> "Pattern":
    import re2  # type: ignore[import-untyped]

    try:
        # The library has one limit for the program and the states together, so the program is tried alone first.
        _compile_within(regex, _PROGRAM_BYTES_MAX)
        return _compile_within(regex, _STATES_BYTES_MAX)
    except (re2.error, UnicodeError) as error:
        raise ApiError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex {regex[:200]!r} is not a valid regular expression: {_reason(error)}.",
        ) from None


def _compile_within(regex: str, memory_bytes: int) -> "Pattern":
    import re2

    options = re2.Options()
    options.max_mem = memory_bytes
    options.log_errors = False
    options.never_capture = True
    # Bytes, since the library is far slower with text.
    pattern: Pattern = re2.compile(regex.encode(), options=options)
    return pattern


def _reason(error: Exception) -> str:
    """The library's words, which come as bytes."""
    first = error.args[0] if error.args else error
    return first.decode(errors="replace") if isinstance(first, bytes) else str(first)
