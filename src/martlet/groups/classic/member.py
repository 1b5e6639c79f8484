"""A member of a classic group: what it said about itself when it last joined.

Frozen: who waits for what, and what is assigned to whom, is the group's. Protocol metadata is opaque bytes.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from martlet.wire.messages.join_group import JoinGroupRequestProtocol

Protocols: TypeAlias = tuple[tuple[str, bytes], ...]
"""Names with metadata, best first."""

_MEMBER_BYTES = 64
"""Counted for every member beyond its texts, so that very many small ones have a size too."""


@dataclass(frozen=True, slots=True)
class Member:
    """Who it is, how long it may stay silent, and which protocols it knows."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    @property
    def size_bytes(self) -> int:
        """About what it takes in the group's record and in memory."""
        texts = (self.member_id, self.instance_id or "", self.client_id, self.client_host)
        return _MEMBER_BYTES + sum(map(_text_bytes, texts)) + protocols_bytes(self.protocols)

    def metadata(self, protocol: str | None) -> bytes | None:
        """What it said for this protocol; None when it does not know it."""
        return next((metadata for name, metadata in self.protocols if name == protocol), None)

    def vote(self, candidates: Collection[str]) -> str | None:
        """The candidate it likes best."""
        return next((name for name, _ in self.protocols if name in candidates), None)


def protocols_of(asked: Iterable[JoinGroupRequestProtocol]) -> Protocols:
    """The protocols of a request, each name once."""
    first: dict[str, bytes] = {}
    for protocol in asked:
        first.setdefault(protocol.name, bytes(protocol.metadata))
    return tuple(first.items())


def protocols_bytes(protocols: Protocols) -> int:
    """Size of names and metadata together."""
    return sum(_text_bytes(name) + len(metadata) for name, metadata in protocols)


def _text_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))
