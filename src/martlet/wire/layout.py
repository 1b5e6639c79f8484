"""The layout of one version of one message: which fields follow each other on the wire and how each is written.

Rules: this is the only module that reads the schema library (`kio`), and it imports it when the first layout is asked
for, because that import is slow. What it returns holds plain values only: nothing else needs to know where they came
from. An API of our own is not in the library: the module of its messages says their layouts in `TABLES`.

How it works: the schema library has one class per message and version, with the wire type of every field in its
metadata. `message_layout` walks it together with our one class for all versions and pairs fields by name: see
`wire.messages` for the differences in naming. Our class is a dataclass, or a named tuple where speed matters. A field
of the schema that our class lacks stays in the layout, marked as not kept: it is read over and written at its default.

Proved by: tests/unit/wire/test_message_layout.py, tests/unit/wire/test_message_schemas.py
"""

import dataclasses
import sys
import types
import typing
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from importlib import import_module
from typing import Any, Final

from martlet.base.invariant import invariant

FIXED_FORMATS: Final[Mapping[str, str]] = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint8": "B",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
    "float64": "d",
    "error_code": "h",
    "timedelta_i32": "i",
    "timedelta_i64": "q",
    "datetime_i64": "q",
    "uuid": "16s",
}
"""Wire types of fixed width, as letters of the `struct` module."""

FORMAT_BYTES: Final[Mapping[str, int]] = {
    "?": 1, "b": 1, "B": 1, "h": 2, "H": 2, "i": 4, "I": 4, "q": 8, "Q": 8, "d": 8, "16s": 16,
}  # fmt: skip

_INSTANT_TYPES: Final = ("timedelta_i32", "timedelta_i64", "datetime_i64")
_VARIABLE_TYPES: Final = {"string": "string", "bytes": "bytes", "records": "bytes"}


@dataclasses.dataclass(frozen=True, slots=True)
class FieldLayout:
    """One field. `format` is a key of FORMAT_BYTES, "string", "bytes" or "struct"; for an array, of its elements."""

    name: str
    format: str
    struct: "StructLayout | None"
    is_array: bool
    is_nullable: bool
    is_kept: bool
    default: Any  # None for an untagged struct, whose default is made of those of its fields

    @property
    def kind(self) -> str:
        """ "fixed", "string", "bytes" or "struct"."""
        return "fixed" if self.format in FORMAT_BYTES else self.format

    def element_bytes_min(self, is_flexible: bool) -> int:
        """The fewest bytes one value (of an array: one element) can take."""
        if self.kind == "fixed":
            return FORMAT_BYTES[self.format]
        if self.struct is not None:
            return 1 if self.is_nullable and not self.is_array else self.struct.bytes_min
        if is_flexible:
            return 1
        return 2 if self.kind == "string" else 4


@dataclasses.dataclass(frozen=True, slots=True)
class StructLayout:
    """A message or a struct inside one; `message_class` is ours, None for a struct that is only read over."""

    name: str
    message_class: type[Any] | None
    is_flexible: bool
    fields: tuple[FieldLayout, ...]
    tagged_fields: tuple[tuple[int, FieldLayout], ...]

    @property
    def bytes_min(self) -> int:
        """The fewest bytes this struct can take: every array empty, every string empty, no tagged field."""
        array = 1 if self.is_flexible else 4
        fields = sum(array if field.is_array else field.element_bytes_min(self.is_flexible) for field in self.fields)
        return fields + self.is_flexible


class OwnTable(typing.Protocol):
    """The fields of a message of our own (`field_table.Table`)."""

    @property
    def record(self) -> type[Any]: ...

    @property
    def newest(self) -> int: ...

    def layout(self, version: int, *, reading: bool) -> StructLayout: ...


def _own_layout(table: OwnTable, version: int) -> StructLayout:
    if not 0 <= version <= table.newest:
        raise ValueError(f"{table.record.__name__} has no version {version}")
    return table.layout(version, reading=False)


def message_layout(message_class: type[Any], version: int) -> StructLayout:
    """The layout of a version of one of our request, response or data classes; ValueError when there is none."""
    tables: Mapping[type[Any], OwnTable] = getattr(sys.modules[message_class.__module__], "TABLES", {})
    if message_class in tables:
        return _own_layout(tables[message_class], version)
    api = message_class.__module__.rpartition(".")[2]
    try:
        with _without_hypothesis():
            module = import_module(f"kio.schema.{api}.v{version}.{message_kind(message_class)}")
    except ModuleNotFoundError as problem:
        if problem.name == "kio":
            raise
        raise ValueError(f"{message_class.__name__} has no version {version}") from None
    return _struct_layout(getattr(module, message_class.__name__), sys.modules[message_class.__module__])


@contextmanager
def _without_hypothesis() -> Iterator[None]:
    """Hide hypothesis while the schema library is first imported.

    Where hypothesis is installed kio registers its types with it, and that costs a second of start-up.
    """
    if "kio" in sys.modules:
        yield
        return
    modules: dict[str, Any] = sys.modules
    names = ("hypothesis", "hypothesis.strategies")
    hidden = {name: modules[name] for name in names if name in modules}
    modules.update(dict.fromkeys(names))
    try:
        yield
    finally:
        for name in names:
            del modules[name]
        modules.update(hidden)


def message_kind(message_class: type[Any]) -> str:
    """ "request", "response" or "data", by the class's name."""
    for kind in ("request", "response"):
        if message_class.__name__.endswith(kind.title()):
            return kind
    return "data"


def class_fields(message_class: type[Any]) -> tuple[str, ...]:
    """The names of the fields of one of our classes, in the order in which it is constructed."""
    if is_named_tuple(message_class):
        names: tuple[str, ...] = message_class._fields
        return names
    return tuple(field.name for field in dataclasses.fields(message_class))


def is_named_tuple(message_class: type[Any]) -> bool:
    """Whether the class is a named tuple rather than a dataclass."""
    return issubclass(message_class, tuple)


def _struct_layout(schema: type[Any], our_module: types.ModuleType) -> StructLayout:
    message_class = getattr(our_module, schema.__name__, None)
    our_names = set(class_fields(message_class)) if message_class else set()
    plain: list[FieldLayout] = []
    tagged: list[tuple[int, FieldLayout]] = []
    for field in dataclasses.fields(schema):
        layout = _field_layout(field, our_names, our_module)
        tag = field.metadata.get("tag")
        if tag is None:
            plain.append(layout)
        else:
            tagged.append((int(tag), _with_shared_default(layout)))
    tagged.sort(key=lambda entry: entry[0])
    is_flexible = bool(schema.__flexible__)
    invariant(is_flexible or not tagged, f"{schema.__name__}: only flexible versions have tagged fields")
    return StructLayout(schema.__name__, message_class, is_flexible, tuple(plain), tuple(tagged))


def _with_shared_default(field: FieldLayout) -> FieldLayout:
    """A tagged field; a struct that is left out is the same object in all messages."""
    message_class = None if field.struct is None else field.struct.message_class
    if message_class is None or field.is_array or field.is_nullable:
        return field
    invariant(is_named_tuple(message_class), f"{field.name} is shared, so its class must be a named tuple")
    return dataclasses.replace(field, default=message_class())


def _field_layout(field: "dataclasses.Field[Any]", our_names: set[str], our_module: types.ModuleType) -> FieldLayout:
    element_type, is_array, is_nullable = _unwrap(field.type)
    struct: StructLayout | None = None
    wire_type = field.metadata.get("kafka_type", "")
    if dataclasses.is_dataclass(element_type):
        format_ = "struct"
        struct = _struct_layout(typing.cast("type[Any]", element_type), our_module)
    elif wire_type in FIXED_FORMATS:
        format_ = FIXED_FORMATS[wire_type]
        # Null of a fixed-width type is a value (-1, or sixteen zero bytes), not something the wire knows about.
        is_nullable = is_nullable and is_array
    else:
        format_ = _VARIABLE_TYPES[wire_type]
    name = our_field_name(field.name, wire_type)
    is_kept = name in our_names
    if is_kept and struct is not None:
        invariant(struct.message_class, f"{our_module.__name__} has a field {name} but no class {struct.name}")
    default = None if format_ == "struct" and not is_array else _default(field, wire_type, is_array, is_nullable)
    return FieldLayout(name, format_, struct, is_array, is_nullable, is_kept, default)


def our_field_name(schema_name: str, wire_type: str) -> str:
    """The name of a field in our classes: times say their unit."""
    if wire_type in _INSTANT_TYPES and not schema_name.endswith("_ms"):
        return f"{schema_name}_ms"
    return schema_name


def _unwrap(annotation: Any) -> tuple[Any, bool, bool]:
    """The type of one element, whether it is an array, whether it may be null."""
    is_nullable = isinstance(annotation, types.UnionType)
    if is_nullable:
        (annotation,) = (member for member in typing.get_args(annotation) if member is not types.NoneType)
    is_array = typing.get_origin(annotation) is tuple
    if is_array:
        annotation = typing.get_args(annotation)[0]
    return annotation, is_array, is_nullable


def _default(field: "dataclasses.Field[Any]", wire_type: str, is_array: bool, is_nullable: bool) -> Any:
    """The schema's default in our types; without one, null where allowed, else zero or empty."""
    value = field.default
    if value is dataclasses.MISSING:
        if is_array:
            return None if is_nullable else []
        value = None
    if is_array:
        return None if value is None else list(value)
    if isinstance(value, timedelta):
        return round(value.total_seconds() * 1000)
    if isinstance(value, datetime):
        return round(value.timestamp() * 1000)
    if value is not None:
        return int(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if field.default is None and wire_type == "datetime_i64":
        return -1
    return None if is_nullable else _ZEROS.get(wire_type, 0)


_ZEROS: Final[Mapping[str, Any]] = {"bool": False, "float64": 0.0, "uuid": bytes(16), "string": "", "bytes": b""}
