"""Our message classes against the schema: every name exists, every version compiles and writes the same bytes."""

import dataclasses
import io
from typing import Any

import pytest
from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer

from martlet.wire.layout import StructLayout, message_layout
from martlet.wire.message_codec import decode, encode, prepare
from tests.unit.wire.message_catalogue import (
    all_versions,
    classes_of,
    message_modules,
    nulled,
    populated,
    schema_class,
    to_schema,
    top_level_classes,
)

ADVERTISED = {
    "api_versions": range(5),
    "metadata": range(14),
    "list_offsets": range(1, 12),
    "offset_for_leader_epoch": range(2, 5),
    "init_producer_id": range(6),
    "find_coordinator": range(7),
    "create_topics": range(2, 8),
    "delete_topics": range(1, 7),
    "create_partitions": range(4),
    "delete_records": range(3),
    "describe_configs": range(1, 5),
    "incremental_alter_configs": range(2),
    "alter_configs": range(3),
    "describe_cluster": range(3),
    "describe_topic_partitions": range(1),
    "describe_log_dirs": range(1, 6),
    "describe_producers": range(1),
    "describe_quorum": range(3),
    "update_features": range(3),
    "alter_replica_log_dirs": range(1, 3),
    "join_group": range(10),
    "sync_group": range(6),
    "heartbeat": range(5),
    "leave_group": range(6),
    "offset_commit": range(2, 11),
    "offset_fetch": range(1, 11),
    "offset_delete": range(1),
    "consumer_group_heartbeat": range(2),
    "consumer_group_describe": range(2),
    "describe_groups": range(7),
    "list_groups": range(6),
    "delete_groups": range(3),
    "list_config_resources": range(2),
    "add_partitions_to_txn": range(6),
    "add_offsets_to_txn": range(5),
    "end_txn": range(6),
    "write_txn_markers": range(1, 3),
    "txn_offset_commit": range(6),
    "describe_transactions": range(1),
    "list_transactions": range(3),
    "sasl_handshake": range(2),
    "sasl_authenticate": range(3),
    "describe_acls": range(1, 4),
    "create_acls": range(1, 4),
    "delete_acls": range(1, 4),
    "describe_client_quotas": range(2),
    "alter_client_quotas": range(2),
    "describe_user_scram_credentials": range(1),
    "alter_user_scram_credentials": range(1),
    "share_group_heartbeat": range(1, 2),
    "share_group_describe": range(1, 2),
    "share_fetch": range(1, 3),
    "share_acknowledge": range(1, 3),
    "describe_share_group_offsets": range(2),
    "alter_share_group_offsets": range(1),
    "delete_share_group_offsets": range(1),
}
"""What Kafka 4.3 advertises for the APIs that we have classes for."""

EVERY_VERSION = [pytest.param(cls, version, id=f"{cls.__name__}-v{version}") for cls, version in all_versions()]


@pytest.mark.parametrize(("api", "versions"), ADVERTISED.items())
def test_every_advertised_version_of_request_and_response_compiles(api: str, versions: range) -> None:
    classes = top_level_classes(message_modules()[api])
    assert len(classes) == 2
    for cls in classes:
        for version in versions:
            prepare(cls, version)


def test_every_field_of_every_class_is_in_some_version_of_the_schema() -> None:
    for api, module in message_modules().items():
        known: dict[type[Any], set[str]] = {}
        for cls in top_level_classes(module):
            for version in schema_name_map[api]:
                _collect_kept_names(message_layout(cls, version), known)
        for cls in classes_of(module):
            assert known.get(cls) == {field.name for field in dataclasses.fields(cls)}, cls


def test_no_field_of_an_advertised_version_is_missing_from_our_classes() -> None:
    for cls, version in all_versions():
        for layout in _structs(message_layout(cls, version)):
            for field in [*layout.fields, *(field for _, field in layout.tagged_fields)]:
                assert field.is_kept, f"{layout.name}.{field.name} of v{version}"


def test_every_field_of_every_class_has_a_default() -> None:
    for module in message_modules().values():
        for cls in classes_of(module):
            cls()


@pytest.mark.parametrize(("cls", "version"), EVERY_VERSION)
@pytest.mark.parametrize("build", [populated, nulled, lambda cls, _: cls()], ids=["populated", "nulled", "default"])
def test_the_bytes_are_those_of_the_schema_library(cls: type[Any], version: int, build: Any) -> None:
    message = build(cls, version)
    schema = schema_class(cls, version)
    expected = to_schema(message, schema)
    out = io.BytesIO()
    entity_writer(schema)(out, expected)

    encoded = encode(message, version)

    assert encoded == out.getvalue()
    assert entity_reader(schema)(encoded, 0) == (expected, len(encoded))
    assert decode(cls, version, encoded) == message


def _collect_kept_names(layout: StructLayout, known: dict[type[Any], set[str]]) -> None:
    for struct in _structs(layout):
        if struct.message_class is not None:
            fields = [*struct.fields, *(field for _, field in struct.tagged_fields)]
            known.setdefault(struct.message_class, set()).update(field.name for field in fields if field.is_kept)


def _structs(layout: StructLayout) -> list[StructLayout]:
    """The struct itself and everything nested in it."""
    fields = [*layout.fields, *(field for _, field in layout.tagged_fields)]
    nested = [struct for field in fields if field.struct is not None for struct in _structs(field.struct)]
    return [layout, *nested]
