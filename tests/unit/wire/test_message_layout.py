"""Layouts: what is taken from the schema, and what happens to fields our classes do not have."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import ModuleType

import pytest

from martlet.wire import decoder_source, encoder_source, messages
from martlet.wire.layout import message_kind, message_layout, our_field_name
from martlet.wire.message_codec import decode, encode
from martlet.wire.messages.api_versions import ApiVersionsResponse
from martlet.wire.messages.create_topics import CreateTopicsRequest
from martlet.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from martlet.wire.messages.list_offsets import ListOffsetsRequest
from martlet.wire.messages.metadata import MetadataRequest, MetadataResponse


@dataclass(slots=True)
class Narrow:
    """A request of ours that keeps one field of the schema; the tests give it the schema's name and module."""

    cursor: Cursor | None = None


@dataclass(slots=True)
class NarrowMetadata:
    """A response that keeps the last field only."""

    topics: list[object] = field(default_factory=list)
    controller_id: int = -1


@pytest.fixture
def narrow_classes() -> Iterator[dict[str, type]]:
    """Classes that look as if they were modules of `wire.messages` of their own."""
    made = {
        "describe_topic_partitions": ("DescribeTopicPartitionsRequest", Narrow, {"Cursor": Cursor}),
        "describe_cluster": ("DescribeClusterResponse", NarrowMetadata, {}),
    }
    classes: dict[str, type] = {}
    for api, (name, cls, extra) in made.items():
        module = ModuleType(f"narrow.{api}")
        twin = dataclass(slots=True)(type(name, (), {"__annotations__": dict(cls.__annotations__), "__module__": f"narrow.{api}"} | _defaults(cls)))
        setattr(module, name, twin)
        for extra_name, value in extra.items():
            setattr(module, extra_name, value)
        sys.modules[module.__name__] = module
        classes[api] = twin
    yield classes
    for api in made:
        del sys.modules[f"narrow.{api}"]
