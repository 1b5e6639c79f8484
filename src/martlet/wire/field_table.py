"""Structs of an internal topic's records as tables of fields, with readers and writers compiled for each version.

The messages of the protocol take their layouts from the schema library; records of coordinators are not in it, so their
layouts are written down as tables, and the same generators make their codecs. What a table says is what is in the log:
a field may get a new version, and never another place or type.

Proved by: tests/unit/groups/test_record_codec.py, tests/properties/test_group_record_codec.py
"""

from collections import namedtuple
from collections.abc import Callable, Mapping
from functools import cached_property
from struct import error
from typing import Any, Final, NamedTuple

from martlet.base.errors import ProtocolViolation
from martlet.wire.decoder_source import compile_decoder
from martlet.wire.encoder_source import compile_encoder
from martlet.wire.layout import FieldLayout, StructLayout, class_fields

_VERSION_BYTES: Final = 2
_OBJECTS_MAX: Final = 4_000_000
NEVER: Final = 99
"""A version that no struct has."""


class Field(NamedTuple):
    """One field: its name in our record, its type (a letter of `struct`, "string", "bytes" or another table)."""

    name: str
    type: "str | Table"
    is_array: bool = False
    is_nullable: bool = False
    since: int = 0
    until: int = NEVER
    default: Any = None
    """For versions without the field, and for a tagged one that is left out."""
    is_tagged: bool = False
    """With tag 0."""


class Table:
    """The fields of one struct, and the codecs of its versions; each is compiled when it is first needed."""

    def __init__(
        self,
        record: type[Any],
        *fields: Field,
        loads: Mapping[str, Callable[[Any], Any]] | None = None,
        dumps: Mapping[str, Callable[[Any], Any]] | None = None,
        newest: int = 0,
        flexible_since: int = 0,
    ) -> None:
        """`loads` and `dumps` turn what the wire knows into what our record holds, and back."""
        self.record = record
        self.newest = newest
        self._fields = fields
        self._flexible_since = flexible_since
        self._loads = dict(loads or {})
        self._dumps = dict(dumps or {})
        self._decoders: dict[int, Callable[[bytes, int, int], Any]] = {}
        self._encoders: dict[int, Callable[[Any], bytes]] = {}

    @cached_property
    def _value(self) -> type[Any]:
        """A named tuple of the fields, in the order of the record's."""
        by_name = {field.name: field for field in self._fields}
        names = [name for name in class_fields(self.record) if name in by_name]
        # Made from a table, so there is no class to write down.
        return namedtuple("_Value", names, defaults=[by_name[name].default for name in names])  # noqa: PYI024

    def layout(self, version: int, *, reading: bool) -> StructLayout:
        """How the generators of `wire` see a version."""
        plain: list[FieldLayout] = []
        tagged: list[FieldLayout] = []
        for name, type_, is_array, is_nullable, since, until, default, is_tagged in self._fields:
            if since <= version <= until:
                struct = type_.layout(version, reading=reading) if isinstance(type_, Table) else None
                format_ = "struct" if isinstance(type_, Table) else type_
                layout = FieldLayout(name, format_, struct, is_array, is_nullable, is_kept=True, default=default)
                (tagged if is_tagged else plain).append(layout)
        made = self._value if reading or self._dumps else self.record
        is_flexible = version >= self._flexible_since
        return StructLayout(self.record.__name__, made, is_flexible, tuple(plain), tuple(enumerate(tagged)))

    def encode(self, record: Any, version: int = 0) -> bytes:
        """The fields of a record; struct.error or ValueError when the version cannot hold them."""
        encode = self._encoders.get(version)
        if encode is None:
            title = f"{self.record.__name__} v{version}"
            encode = self._encoders[version] = compile_encoder(self.layout(version, reading=False), title)
        if self._dumps:
            record = [self._dumps.get(name, _as_it_is)(getattr(record, name)) for name in self._value._fields]
        return encode(record)

    def decode(self, data: bytes, version: int = 0) -> Any:
        """The fields behind a version of 16 bits, as a tuple; raises ProtocolViolation."""
        decode = self._decoders.get(version)
        if decode is None:
            title = f"{self.record.__name__} v{version}"
            decode = self._decoders[version] = compile_decoder(self.layout(version, reading=True), title)
        try:
            value = decode(data, _VERSION_BYTES, _OBJECTS_MAX)
        except (error, IndexError):
            raise ProtocolViolation("the message ends inside a field") from None
        except UnicodeDecodeError:
            raise ProtocolViolation("a string is not UTF-8") from None
        if not self._loads:
            return value
        return value._replace(**{name: load(getattr(value, name)) for name, load in self._loads.items()})


def _as_it_is(value: Any) -> Any:
    return value
