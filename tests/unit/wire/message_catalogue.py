"""All message classes and the versions they have, and builders that fill any of them; shared by the tests of the codec.

The versions are those of the schema library.
"""

import dataclasses
import importlib
import pkgutil
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import Any

from kio.schema.errors import ErrorCode as SchemaErrorCode
from kio.schema.index import schema_name_map

from martlet.wire import messages
from martlet.wire.layout import FieldLayout, StructLayout, message_kind, message_layout, our_field_name


def message_modules() -> dict[str, ModuleType]:
    """Every module of `wire.messages` that is an API."""
    names = [entry.name for entry in pkgutil.iter_modules(messages.__path__)]
    return {name: importlib.import_module(f"{messages.__name__}.{name}") for name in names if name in schema_name_map}


def classes_of(module: ModuleType) -> list[type[Any]]:
    """The dataclasses a module defines."""
    return [
        value
        for value in vars(module).values()
        if isinstance(value, type) and dataclasses.is_dataclass(value) and value.__module__ == module.__name__
    ]


def top_level_classes(module: ModuleType) -> list[type[Any]]:
    """The request and the response a module defines."""
    api = module.__name__.rpartition(".")[2].title().replace("_", "")
    return [cls for cls in classes_of(module) if cls.__name__ in (f"{api}Request", f"{api}Response")]


def all_versions() -> list[tuple[type[Any], int]]:
    """Every (request or response class, version) there is."""
    return [
        (cls, version)
        for api, module in message_modules().items()
        for cls in top_level_classes(module)
        for version in sorted(schema_name_map[api])
    ]


def schema_class(message_class: type[Any], version: int) -> type[Any]:
    """The schema library's class for one version."""
    api = message_class.__module__.rpartition(".")[2]
    module = importlib.import_module(f"kio.schema.{api}.v{version}.{message_kind(message_class)}")
    found: type[Any] = getattr(module, message_class.__name__)
    return found


def fill(layout: StructLayout, choose: Callable[[FieldLayout], Any]) -> Any:
    """A message with the fields of one version; `choose` gives scalars, and for arrays their lengths or None.

    For a struct that may be null `choose` says whether it is there.
    """
    assert layout.message_class is not None
    every_field = [*layout.fields, *(field for _, field in layout.tagged_fields)]
    return layout.message_class(
        **{field.name: _fill_field(field, choose) for field in every_field if field.is_kept},
    )


def _fill_field(field: FieldLayout, choose: Callable[[FieldLayout], Any]) -> Any:
    if field.is_array:
        length = choose(field)
        element = dataclasses.replace(field, is_array=False, is_nullable=False)
        return None if length is None else [_fill_field(element, choose) for _ in range(length)]
    if field.struct is not None:
        return fill(field.struct, choose) if not field.is_nullable or choose(field) else None
    return choose(field)


def populated(message_class: type[Any], version: int) -> Any:
    """Every field set to something that is not its default."""
    return fill(message_layout(message_class, version), _some_value)


def nulled(message_class: type[Any], version: int) -> Any:
    """Every field that may be null is."""
    return fill(message_layout(message_class, version), _null_or_some_value)


def _some_value(field: FieldLayout) -> Any:
    if field.is_array:
        return 2
    if field.struct is not None or field.format == "?":
        return True
    if field.kind == "string":
        return f"some {field.name}"
    if field.kind == "bytes":
        return b"some bytes"
    return bytes(range(16)) if field.format == "16s" else 7


def _null_or_some_value(field: FieldLayout) -> Any:
    return None if field.is_nullable else _some_value(field)


def to_schema(message: Any, schema: type[Any]) -> Any:
    """The schema library's object with the same values."""
    return schema(**{field.name: _to_schema_value(message, field) for field in dataclasses.fields(schema)})


def _to_schema_value(message: Any, field: "dataclasses.Field[Any]") -> Any:
    wire_type = field.metadata.get("kafka_type", "")
    value = getattr(message, our_field_name(field.name, wire_type))
    if value is None:
        return None
    if isinstance(value, list):
        return tuple(_element_to_schema(element, wire_type, field) for element in value)
    return _element_to_schema(value, wire_type, field)


def _element_to_schema(value: Any, wire_type: str, field: "dataclasses.Field[Any]") -> Any:
    if dataclasses.is_dataclass(value) or hasattr(value, "_fields"):
        return to_schema(value, _struct_of(field.type))
    if wire_type == "uuid":
        return uuid.UUID(bytes=value) if any(value) else None
    if wire_type == "error_code":
        return SchemaErrorCode(value)
    if wire_type.startswith("timedelta"):
        return timedelta(milliseconds=value)
    if wire_type.startswith("datetime"):
        return datetime.fromtimestamp(value / 1000, tz=UTC)
    return value


def _struct_of(annotation: Any) -> type[Any]:
    """The dataclass inside `X`, `X | None`, `tuple[X, ...]` or `tuple[X, ...] | None`."""
    if dataclasses.is_dataclass(annotation):
        assert isinstance(annotation, type)
        return annotation
    return next(_struct_of(part) for part in annotation.__args__ if part is not type(None) and part is not Ellipsis)
