"""FindCoordinator (key 10): which broker coordinates a group, a transactional id or a share partition.

Versions 0–6. v1 adds the key's type (0 group, 1 transaction, 2 share) and error texts; v3 is the first flexible one; v4
asks for several keys at once, with new fields in both directions; v6 brings type 2.
"""

from dataclasses import field

from martlet.wire.message import message


@message
class FindCoordinatorRequest:
    """The keys: `key` until v3, `coordinator_keys` from v4 on."""

    key_type: int = 0  # v1+
    coordinator_keys: list[str] = field(default_factory=list)  # v4+
    key: str = ""  # until v3


@message
class Coordinator:
    """The answer for one key."""

    key: str = ""
    node_id: int = 0
    host: str = ""
    port: int = 0
    error_code: int = 0
    error_message: str | None = None


@message
class FindCoordinatorResponse:
    """The answer: the fields of the class itself until v3, `coordinators` from v4 on."""

    throttle_time_ms: int = 0  # v1+
    coordinators: list[Coordinator] = field(default_factory=list)  # v4+
    error_code: int = 0  # until v3
    node_id: int = 0  # until v3
    host: str = ""  # until v3
    port: int = 0  # until v3
    error_message: str | None = None  # v1–v3
