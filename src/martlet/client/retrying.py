"""When to try again: growing pauses, and the deadline after which the failure reaches the caller.

Time is the running loop's, so a simulated loop drives it.
"""

import asyncio

from martlet.base.errors import ERROR_TABLE, ApiError
from martlet.base.randomness import Randomness
from martlet.client.backoff import Backoff
from martlet.client.errors import ClientError
from martlet.client.options import ClientOptions


def is_worth_retrying(error: BaseException) -> bool:
    """Whether the same request may succeed later; a lost connection counts, the caller minds its outcome."""
    return isinstance(error, ClientError) or (isinstance(error, ApiError) and error.retriable)


def asks_for_new_metadata(error: BaseException) -> bool:
    """Whether the failure may come from an outdated idea of who leads."""
    return isinstance(error, ClientError) or (isinstance(error, ApiError) and ERROR_TABLE[error.code].refresh_metadata)


class Retrying:
    """One operation's attempts. Not shared: make one per operation."""

    __slots__ = ("_backoff", "_deadline")

    def __init__(self, options: ClientOptions, randomness: Randomness, *, timeout_ms: int | None = None) -> None:
        """The deadline runs from here; needs a running loop."""
        total_ms = options.retry_timeout_ms if timeout_ms is None else timeout_ms
        self._deadline = asyncio.get_running_loop().time() + total_ms / 1000
        self._backoff = Backoff(options.retry_backoff_ms, options.retry_backoff_max_ms, randomness)

    def time_left(self) -> bool:
        return asyncio.get_running_loop().time() < self._deadline

    async def pause(self, error: Exception) -> None:
        """Wait before the next attempt, or raise `error` when it is final or time is up."""
        if not is_worth_retrying(error) or not self.time_left():
            raise error
        await asyncio.sleep(self._backoff.next_ms() / 1000)
