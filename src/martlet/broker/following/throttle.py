"""A limit on the bytes per second with which replicas that are behind catch up: a bucket that refills with time.

Rules: pure; time comes as seconds of whatever clock the caller goes by. The limit is for replicas that are not in sync
yet, so that filling a new replica leaves bandwidth for clients. Those in sync are never held back: they would not stay
so.

How it works: what was fetched is taken from the bucket, also when that is more than there is, because an answer's size
is known only when it has come. While the bucket is below zero nothing more is fetched. It holds one second's
worth at most.

Proved by: tests/unit/broker/following/test_throttle.py
"""


class ReplicaThrottle:
    """One for all fetchers of a broker; a rate of 0 means no limit. The rate may change while it is used."""

    __slots__ = ("_bytes", "_filled_at", "_rate")

    def __init__(self, bytes_per_second: int) -> None:
        self._rate = bytes_per_second
        self._bytes = float(bytes_per_second)
        self._filled_at: float | None = None

    @property
    def limits(self) -> bool:
        """Whether there is a limit at all."""
        return self._rate > 0

    @property
    def rate(self) -> int:
        """Bytes per second."""
        return self._rate

    def change_rate(self, bytes_per_second: int, now: float) -> None:
        """Another limit from now on, or none; what was taken too early is waited for at the new rate."""
        self._refill(now)
        # Without a limit nothing was counted.
        self._bytes = min(self._bytes, bytes_per_second) if self.limits else float(bytes_per_second)
        self._rate = bytes_per_second

    def took(self, size: int, now: float) -> None:
        """These bytes have come for replicas that are catching up."""
        if self.limits:
            self._refill(now)
            self._bytes -= size

    def wait_seconds(self, now: float) -> float:
        """How long to wait before asking for more; 0: not at all."""
        if not self.limits:
            return 0.0
        self._refill(now)
        return max(0.0, -self._bytes / self._rate)

    def _refill(self, now: float) -> None:
        if self._filled_at is not None:
            self._bytes = min(float(self._rate), self._bytes + (now - self._filled_at) * self._rate)
        self._filled_at = now
