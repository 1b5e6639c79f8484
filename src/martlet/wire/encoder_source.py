"""Generates, from a layout, the function that encodes one version of one message.

How it works: the whole message becomes one function that appends to a `bytearray`, with nested structs unrolled in
place. Values of fixed width are gathered as long as they follow each other, across the borders of structs and including
the lengths of old-style strings and arrays, and written by one `struct` call. A field that our class lacks is written
at its default. Tagged fields are written in ascending order, and only those that differ from their default.

Rules: a message that does not fit its version (null where none is allowed, a number out of range, a string too long)
raises; `wire.message_codec` says as what. Nothing partial is ever returned.

Proved by: tests/unit/wire/test_message_bytes.py, tests/properties/test_message_codec.py
"""

from collections.abc import Callable
from struct import Struct, pack
from typing import Any

from martlet.base.invariant import invariant
from martlet.wire.codec_source import SourceWriter
from martlet.wire.layout import FORMAT_BYTES, FieldLayout, StructLayout, class_fields, is_named_tuple
from martlet.wire.primitives import STRING_BYTES_MAX, write_uvarint


def compile_encoder(layout: StructLayout, title: str) -> Callable[[Any], bytes]:
    """A function message -> bytes of its body."""
    return _write_encoder(layout).compile("encode", title)


def encoder_source(layout: StructLayout) -> str:
    """The text that `compile_encoder` compiles, for people."""
    return _write_encoder(layout).source


def _write_encoder(layout: StructLayout) -> SourceWriter:
    out = SourceWriter()
    out.provide(pack=pack, write_uvarint=write_uvarint, write_long_text=_write_long_text)
    with out.block("def encode(message):"):
        out.line("out = bytearray()")
        writer = _Writer(out)
        writer.write_struct(layout, "message", "out")
        writer.flush("out")
        out.line("return bytes(out)")
    return out


class _Writer:
    """Writes the code; `target` is always the variable of the bytearray that is appended to."""

    def __init__(self, out: SourceWriter) -> None:
        self._out = out
        self._formats: list[str] = []
        self._arguments: list[str] = []

    def write_struct(self, layout: StructLayout, source: str | None, target: str) -> None:
        """`source` is the expression of the object, None for a struct our classes do not have."""
        values = {} if source is None or layout.message_class is None else self._values(layout.message_class, source)
        for field in layout.fields:
            self._write_field(field, layout.is_flexible, values.get(field.name) or _default(field), target)
        if not layout.is_flexible:
            return
        tagged = [(tag, field, values[field.name]) for tag, field in layout.tagged_fields if field.name in values]
        if tagged:
            self._write_tagged_section(tagged, target)
        else:
            self._formats.append("x")

    def _values(self, message_class: type[Any], source: str) -> dict[str, str]:
        """The expression of every field of an object; a plain tuple may stand for a named one."""
        names = class_fields(message_class)
        if not is_named_tuple(message_class):
            return {name: f"{source}.{name}" for name in names}
        values = {name: self._out.fresh("f") for name in names}
        self._out.line(f"({', '.join(values.values())},) = {source}")
        return values

    def flush(self, target: str) -> None:
        """Write out the values of fixed width gathered so far."""
        if self._arguments:
            packer = self._out.constant("pack", Struct(">" + "".join(self._formats)).pack)
            self._out.line(f"{target} += {packer}({', '.join(self._arguments)})")
        elif self._formats:
            self._out.line(f"{target} += {bytes(len(self._formats))!r}")
        self._formats.clear()
        self._arguments.clear()

    def _gather(self, format_: str, argument: str) -> None:
        self._formats.append(format_)
        self._arguments.append(argument)

    def _write_field(self, field: FieldLayout, is_flexible: bool, value: str | None, target: str) -> None:
        if value is None or (field.struct is not None and not field.is_array and not field.is_nullable):
            self._write_plain(field, is_flexible, value, target)
        elif field.kind == "fixed" and not field.is_array:
            self._gather(field.format, value)
        else:
            variable = self._out.fresh("m")
            self._out.line(f"{variable} = {value}")
            if field.is_nullable:
                self._write_nullable(field, is_flexible, variable, target)
            elif field.is_array:
                self._write_array(field, is_flexible, variable, target)
            else:
                self._write_plain(field, is_flexible, variable, target)

    def _write_nullable(self, field: FieldLayout, is_flexible: bool, variable: str, target: str) -> None:
        self.flush(target)
        with self._out.block(f"if {variable} is None:"):
            self._out.line(f"{target} += {_null(field, is_flexible)!r}")
        with self._out.block("else:"):
            if field.struct is not None and not field.is_array:
                self._gather("b", "1")
            if field.is_array:
                self._write_array(field, is_flexible, variable, target)
            else:
                self._write_plain(field, is_flexible, variable, target)
            self.flush(target)

    def _write_plain(self, field: FieldLayout, is_flexible: bool, value: str | None, target: str) -> None:
        """A value that is there and no array: struct, string or bytes."""
        if field.struct is not None:
            self.write_struct(field.struct, value, target)
            return
        raw = value
        if field.kind == "string":
            raw = self._out.fresh("s")
            self._out.line(f"{raw} = {value}.encode()")
        if not is_flexible:
            self._gather("h" if field.kind == "string" else "i", f"len({raw})")
            self.flush(target)
            self._out.line(f"{target} += {raw}")
            return
        self.flush(target)
        self._out.line(f"n = len({raw})")
        with self._out.block("if n < 127:"):
            self._out.line(f"{target}.append(n + 1)")
            self._out.line(f"{target} += {raw}")
        with self._out.block("else:"):
            if field.kind == "string":
                self._out.line(f"write_long_text({target}, {raw})")
            else:
                self._out.line(f"write_uvarint({target}, n + 1)")
                self._out.line(f"{target} += {raw}")

    def _write_array(self, field: FieldLayout, is_flexible: bool, variable: str, target: str) -> None:
        if is_flexible:
            self.flush(target)
            self._out.line(f"n = len({variable})")
            with self._out.block("if n < 127:"):
                self._out.line(f"{target}.append(n + 1)")
            with self._out.block("else:"):
                self._out.line(f"write_uvarint({target}, n + 1)")
        else:
            self._gather("i", f"len({variable})")
            self.flush(target)
        if field.kind == "fixed":
            element = field.format
            if element == "16s":
                self._out.line(f'{target} += b"".join({variable})')
            else:
                with self._out.block(f"if {variable}:"):
                    self._out.line(f'{target} += pack(f">{{len({variable})}}{element}", *{variable})')
            return
        item = self._out.fresh("m")
        with self._out.block(f"for {item} in {variable}:"):
            self._write_plain(field, is_flexible, item, target)
            self.flush(target)

    def _write_tagged_section(self, tagged: list[tuple[int, FieldLayout, str]], target: str) -> None:
        """A section of fewer than 128 fields with tags below 128: of each, and of their number, one byte."""
        invariant(tagged[-1][0] < 128, "the tag of a field we write takes one byte")
        self.flush(target)
        present = [self._out.fresh("is_set") for _ in tagged]
        for name, (_, field, value) in zip(present, tagged, strict=True):
            default = repr(field.default) if field.struct is None else self._out.constant("default", field.default)
            self._out.line(f"{name} = {value} != {default}")
        self._out.line(f"{target}.append({' + '.join(present)})")
        for name, (tag, field, value) in zip(present, tagged, strict=True):
            with self._out.block(f"if {name}:"):
                if field.kind == "fixed" and not field.is_array:
                    self._gather("B", str(tag))
                    self._gather("B", str(FORMAT_BYTES[field.format]))
                    self._gather(field.format, value)
                    self.flush(target)
                else:
                    part = self._out.fresh("part")
                    self._out.line(f"{part} = bytearray()")
                    self._write_field(field, True, value, part)
                    self.flush(part)
                    self._out.line(f"{target}.append({tag})")
                    self._out.line(f"write_uvarint({target}, len({part}))")
                    self._out.line(f"{target} += {part}")


def _default(field: FieldLayout) -> str | None:
    """The expression of a field that our class lacks, None for a struct that has to be made of defaults."""
    if field.kind == "struct" and not field.is_array and not field.is_nullable:
        return None
    return repr(field.default)


def _null(field: FieldLayout, is_flexible: bool) -> bytes:
    if field.struct is not None and not field.is_array:
        return b"\xff"
    if is_flexible:
        return b"\x00"
    return b"\xff\xff" if field.kind == "string" and not field.is_array else b"\xff\xff\xff\xff"


def _write_long_text(target: bytearray, raw: bytes) -> None:
    if len(raw) > STRING_BYTES_MAX:
        raise ValueError(f"a string of {len(raw)} bytes, where {STRING_BYTES_MAX} are allowed")
    write_uvarint(target, len(raw) + 1)
    target += raw
