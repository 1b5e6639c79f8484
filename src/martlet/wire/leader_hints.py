"""Where a partition's leader really is: what Produce and Fetch responses say so that a client need not ask again.

Both responses carry the same two hints in tagged fields: the leader and its epoch per partition, and the addresses of
the leaders named. They are absent when unset; 0/0 would send clients to broker 0.

Proved by: tests/properties/test_produce_fetch_codec.py
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from martlet.wire.primitives import (
    read_compact_array_count,
    read_compact_nullable_string,
    read_compact_string,
    read_int32,
    read_tag,
    read_tagged_count,
    skip_tagged_fields,
    write_compact_nullable_string,
    write_compact_string,
    write_uvarint,
)
from martlet.wire.topic_fields import check_value_end, read_tagged_pair, write_tagged_pair

_INT32: Final = Struct(">i")
_LEADER: Final = Struct(">ii")
_ENDPOINT_BYTES_MIN: Final = 11


class CurrentLeader(NamedTuple):
    """The broker that leads a partition, as far as the sender knows; -1 for unknown."""

    leader_id: int = -1
    leader_epoch: int = -1


class NodeEndpoint(NamedTuple):
    """How to reach a broker."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


def write_leader_tag(out: bytearray, tag: int, leader: CurrentLeader) -> None:
    """A tag, its size, and the leader."""
    write_tagged_pair(out, tag, _LEADER, leader)


def read_leader(view: memoryview, position: int, end: int) -> CurrentLeader:
    """The leader in a tagged field's value."""
    return CurrentLeader(*read_tagged_pair(view, position, end, _LEADER))


def write_endpoints_tag(out: bytearray, tag: int, endpoints: Sequence[NodeEndpoint]) -> None:
    """A tag, its size, and the endpoints."""
    value = bytearray()
    write_uvarint(value, len(endpoints) + 1)
    for endpoint in endpoints:
        value += _INT32.pack(endpoint.node_id)
        write_compact_string(value, endpoint.host)
        value += _INT32.pack(endpoint.port)
        write_compact_nullable_string(value, endpoint.rack)
        value.append(0)
    out.append(tag)
    write_uvarint(out, len(value))
    out += value


def _read_endpoints(view: memoryview, position: int, end: int) -> list[NodeEndpoint]:
    """The endpoints in a tagged field's value."""
    value = view[:end]
    count, position = read_compact_array_count(value, position, _ENDPOINT_BYTES_MIN)
    endpoints = []
    for _ in range(count):
        node_id, position = read_int32(value, position)
        host, position = read_compact_string(value, position)
        port, position = read_int32(value, position)
        rack, position = read_compact_nullable_string(value, position)
        position = skip_tagged_fields(value, position)
        endpoints.append(NodeEndpoint(node_id, host, port, rack))
    check_value_end(position, end)
    return endpoints


def read_response_tags(view: memoryview, position: int, *, has_endpoints: bool) -> tuple[list[NodeEndpoint], int]:
    """The tagged fields at the end of a response: the endpoints, where its version has them."""
    endpoints: list[NodeEndpoint] = []
    count, position = read_tagged_count(view, position)
    tag = -1
    for _ in range(count):
        tag, end, position = read_tag(view, position, tag)
        if tag == 0 and has_endpoints:
            endpoints = _read_endpoints(view, position, end)
        position = end
    return endpoints, position
