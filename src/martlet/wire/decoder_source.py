"""Generates, from a layout, the function that decodes one version of one message.

How it works: the whole message becomes one function with nested structs unrolled in place, so that the position in the
data (`p`), its size and the object budget are local variables. Neighbouring fields of fixed width are read by one
`struct` call. Short strings and small arrays, which nearly all are, are handled right there; longer ones and all errors
are left to `wire.primitives`.

Invariants:

DECO-1 Before elements of an array are read, their number has been checked against the bytes left (each takes its
   minimum) and taken off the budget. Tagged fields beyond those that the struct knows count as elements.
DECO-2 Every turn of a loop consumes at least one byte or ends the decoding.
DECO-3 What the generated function may raise on any bytes: ProtocolViolation; struct.error and IndexError, which mean
   that the data ended; UnicodeDecodeError. `wire.message_codec` turns the last three into the first.

Proved by: tests/unit/wire/test_message_bytes.py, tests/properties/test_message_codec.py
"""

from collections.abc import Callable, Sequence
from itertools import groupby
from struct import Struct, unpack_from
from typing import Any, NoReturn

from martlet.base.errors import ProtocolViolation
from martlet.wire import primitives
from martlet.wire.codec_source import SourceWriter
from martlet.wire.layout import FORMAT_BYTES, FieldLayout, StructLayout, class_fields, is_named_tuple


def compile_decoder(layout: StructLayout, title: str, *, ignore_rest: bool = False) -> Callable[[bytes, int, int], Any]:
    """A function (data, position, object budget) -> message.

    It demands that the message ends where the data does, unless asked to ignore what follows.
    """
    return _write_decoder(layout, ignore_rest=ignore_rest).compile("decode", title)


def decoder_source(layout: StructLayout) -> str:
    """The text that `compile_decoder` compiles, for people."""
    return _write_decoder(layout).source


def _write_decoder(layout: StructLayout, *, ignore_rest: bool = False) -> SourceWriter:
    out = SourceWriter()
    out.provide(
        new=tuple.__new__,
        unpack_from=unpack_from,
        underflow=primitives.underflow,
        reject_null=_reject_null,
        reject_marker=_reject_marker,
        reject_budget=_reject_budget,
        reject_tag_size=_reject_tag_size,
        reject_rest=_reject_rest,
        **{name: value for name, value in vars(primitives).items() if name.startswith("read_")},
    )
    with out.block("def decode(data, p, budget):"):
        out.line("size = len(data)")
        message = _StructReader(out, layout).read()
        if not ignore_rest:
            with out.block("if p != size:"):
                out.line("reject_rest(p, size)")
        out.line(f"return {message}")
    return out


class _StructReader:
    """Writes the code that reads one struct."""

    def __init__(self, out: SourceWriter, layout: StructLayout) -> None:
        self._out = out
        self._layout = layout
        self._values: dict[str, str] = {}

    def read(self) -> str:
        """Writes the code; the returned expression makes the object, "None" for a struct that is only read over."""
        for is_run, fields in groupby(self._layout.fields, _is_fixed):
            if is_run:
                self._read_fixed_run(list(fields))
            else:
                for field in fields:
                    self._keep(field, self._read_field(field))
        if self._layout.is_flexible:
            self._read_tagged_section()
        return self._construction()

    def _keep(self, field: FieldLayout, value: str) -> None:
        if field.is_kept:
            self._values[field.name] = value

    def _construction(self) -> str:
        message_class = self._layout.message_class
        if message_class is None:
            return "None"
        made = self._out.constant("C", message_class)
        names = class_fields(message_class)
        if is_named_tuple(message_class):
            defaults = message_class._field_defaults
            values = (self._values.get(name) or self._out.constant("default", defaults[name]) for name in names)
            return f"new({made}, ({', '.join(values)},))"
        arguments: list[str] = []
        positional = True
        for name in names:
            value = self._values.get(name)
            if value is None:
                positional = False
            else:
                arguments.append(value if positional else f"{name}={value}")
        return f"{made}({', '.join(arguments)})"

    def read_rows(self, value: str) -> None:
        """Writes the code for `n` structs of fixed width, which one `struct` iterator reads."""
        layout, names = self._fixed_run(self._layout.fields)
        rows = self._out.constant("rows", layout.iter_unpack)
        row = ", ".join(names)
        self._out.line(
            f"{value} = [{self._construction()} for {row}, in {rows}(data[p : p + n * {layout.size}])] if n else []"
        )
        self._out.line(f"p += n * {layout.size}")

    def _fixed_run(self, fields: Sequence[FieldLayout]) -> tuple[Struct, list[str]]:
        """How to unpack neighbouring fields of fixed width, and the variables for those that are kept."""
        layout = Struct(">" + "".join(f.format if f.is_kept else f"{FORMAT_BYTES[f.format]}x" for f in fields))
        names = []
        for field in fields:
            if field.is_kept:
                self._values[field.name] = name = self._out.fresh("v")
                names.append(name)
        return layout, names

    def _read_fixed_run(self, fields: list[FieldLayout]) -> None:
        layout, names = self._fixed_run(fields)
        if names:
            unpack = self._out.constant("unpack", layout.unpack_from)
            self._out.line(f"({', '.join(names)},) = {unpack}(data, p)")
        else:
            with self._out.block(f"if size - p < {layout.size}:"):
                self._out.line("underflow(p)")
        self._out.line(f"p += {layout.size}")

    def _read_field(self, field: FieldLayout) -> str:
        """Writes the code for one field and returns the variable that holds it."""
        value = self._out.fresh("v")
        if field.is_array:
            self._read_array(field, value)
        elif field.kind == "fixed":
            self._out.line(f"{value} = {self._fixed_element(field)}")
            self._out.line(f"p += {FORMAT_BYTES[field.format]}")
        elif field.struct is not None:
            self._read_struct(field, field.struct, value)
        else:
            self._read_text(field, value, is_nullable=field.is_nullable)
        return value

    def _fixed_element(self, field: FieldLayout) -> str:
        return f"{self._out.constant('unpack', Struct('>' + field.format).unpack_from)}(data, p)[0]"

    def _read_struct(self, field: FieldLayout, struct: StructLayout, value: str) -> None:
        if not field.is_nullable:
            self._out.line(f"{value} = {_StructReader(self._out, struct).read()}")
            return
        self._out.line("n = data[p]")
        self._out.line("p += 1")
        with self._out.block("if n == 255:"):
            self._out.line(f"{value} = None")
        with self._out.block("elif n == 1:"):
            self._out.line(f"{value} = {_StructReader(self._out, struct).read()}")
        with self._out.block("else:"):
            self._out.line("reject_marker(n, p)")

    def _read_text(self, field: FieldLayout, value: str, *, is_nullable: bool) -> None:
        """A string or bytes: short ones in place, the rest and all errors by the general reader."""
        compact = "compact_" if self._layout.is_flexible else ""
        reader = f"read_{compact}{'nullable_' if is_nullable else ''}{field.kind}"
        if field.kind == "bytes":
            self._out.line(f"{value}, p = {reader}(data, p)")
            return
        if self._layout.is_flexible:
            self._out.line("n = data[p]")
            with self._out.block("if 0 < n < 128 and p + n <= size:"):
                self._out.line(f"{value} = data[p + 1 : p + n].decode()")
                self._out.line("p += n")
        else:
            self._out.line("n = data[p] << 8 | data[p + 1]")
            with self._out.block("if n < 32768 and p + 2 + n <= size:"):
                self._out.line(f"{value} = data[p + 2 : p + 2 + n].decode()")
                self._out.line("p += 2 + n")
        with self._out.block("else:"):
            self._out.line(f"{value}, p = {reader}(data, p)")

    def _read_array(self, field: FieldLayout, value: str) -> None:
        # At least one byte each, whatever the schema says: see the second invariant.
        element_bytes = max(1, field.element_bytes_min(self._layout.is_flexible))
        if self._layout.is_flexible:
            self._out.line("n = data[p] - 1")
            with self._out.block(f"if 0 <= n < 127 and n * {element_bytes} < size - p:"):
                self._out.line("p += 1")
            with self._out.block("else:"):
                self._out.line(f"n, p = read_compact_array_count(data, p, {element_bytes})")
        else:
            self._out.line(f"n, p = read_array_count(data, p, {element_bytes})")
        if field.is_nullable:
            with self._out.block("if n < 0:"):
                self._out.line(f"{value} = None")
            with self._out.block("else:"):
                self._read_elements(field, value)
        else:
            with self._out.block("if n < 0:"):
                self._out.line("reject_null(p)")
            self._read_elements(field, value)

    def _read_elements(self, field: FieldLayout, value: str) -> None:
        self._spend_budget("n")
        if field.format == "16s":
            self._out.line(f"{value} = [data[q : q + 16] for q in range(p, p + n * 16, 16)]")
            self._out.line("p += n * 16")
        elif field.kind == "fixed":
            self._out.line(f'{value} = list(unpack_from(f">{{n}}{field.format}", data, p)) if n else []')
            self._out.line(f"p += n * {FORMAT_BYTES[field.format]}")
        elif field.struct is not None and _is_row(field.struct):
            _StructReader(self._out, field.struct).read_rows(value)
        else:
            self._out.line(f"{value} = []")
            with self._out.block("for _ in range(n):"):
                if field.struct is not None:
                    element = _StructReader(self._out, field.struct).read()
                else:
                    element = self._out.fresh("v")
                    self._read_text(field, element, is_nullable=False)
                self._out.line(f"{value}.append({element})")

    def _read_tagged_section(self) -> None:
        known = 0
        for _, field in self._layout.tagged_fields:
            if field.is_kept:
                known += 1
                self._keep(field, value := self._out.fresh("v"))
                self._out.line(f"{value} = {self._default(field)}")
        tag, end = self._out.fresh("tag"), self._out.fresh("end")
        # Nearly every section is empty: one byte, zero.
        with self._out.block("if data[p] == 0:"):
            self._out.line("p += 1")
        with self._out.block("else:"):
            self._out.line("n, p = read_tagged_count(data, p)")
            self._spend_budget(f"max(n - {known}, 0)" if known else "n")
            self._out.line(f"{tag} = -1")
            with self._out.block("for _ in range(n):"):
                self._out.line(f"{tag}, {end}, p = read_tag(data, p, {tag})")
                self._read_known_tags(tag, end)

    def _read_known_tags(self, tag: str, end: str) -> None:
        known = [(number, field) for number, field in self._layout.tagged_fields if field.is_kept]
        for number, field in known:
            with self._out.block(f"if {tag} == {number}:"):
                self._out.line(f"{self._values[field.name]} = {self._read_field(field)}")
        if not known:
            self._out.line(f"p = {end}")
            return
        with self._out.block(f"if {tag} not in {tuple(number for number, _ in known)!r}:"):
            self._out.line(f"p = {end}")
        with self._out.block(f"if p != {end}:"):
            self._out.line(f"reject_tag_size({tag}, p, {end})")

    def _default(self, field: FieldLayout) -> str:
        if field.is_array and field.default is not None:
            return "[]"
        return repr(field.default) if field.struct is None else self._out.constant("default", field.default)

    def _spend_budget(self, count: str) -> None:
        self._out.line(f"budget -= {count}")
        with self._out.block("if budget < 0:"):
            self._out.line("reject_budget(p)")


def _is_fixed(field: FieldLayout) -> bool:
    return field.kind == "fixed" and not field.is_array


def _is_row(struct: StructLayout) -> bool:
    """Whether all its values follow each other at fixed places, and some are kept."""
    is_kept = struct.message_class is not None and any(field.is_kept for field in struct.fields)
    return is_kept and not struct.is_flexible and all(map(_is_fixed, struct.fields))


def _reject_null(position: int) -> NoReturn:
    raise ProtocolViolation(f"null before byte {position}, where the protocol allows none")


def _reject_marker(marker: int, position: int) -> NoReturn:
    raise ProtocolViolation(f"the struct before byte {position} is marked {marker}, neither present nor null")


def _reject_budget(position: int) -> NoReturn:
    raise ProtocolViolation(f"more elements by byte {position} than one message may have")


def _reject_tag_size(tag: int, position: int, end: int) -> NoReturn:
    raise ProtocolViolation(f"tagged field {tag} ends at byte {position}, but its size says {end}")


def _reject_rest(position: int, size: int) -> NoReturn:
    raise ProtocolViolation(f"the message ends at byte {position}, but {size} bytes came")
