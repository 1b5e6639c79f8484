"""Generates, from a layout, the function that lists the errors in one version of one message.

How it works: only the way to fields whose names end in `error_code` is walked, so that a message without any costs
nothing, and a large answer one check of each struct that has one. A field that the version or our class lacks tells no
error.

Proved by: tests/unit/wire/test_message_errors.py, tests/broker/test_error_counts.py
"""

from collections.abc import Callable
from typing import Any, Final

from martlet.wire.codec_source import SourceWriter
from martlet.wire.layout import FieldLayout, StructLayout

_ERROR: Final = "error_code"


def compile_errors(layout: StructLayout, title: str) -> Callable[[Any], list[int]]:
    """A function message -> the error codes in it, without those that mean none."""
    out = SourceWriter()
    with out.block("def errors(message):"):
        out.line("found = []")
        _look_through(out, layout, "message")
        out.line("return found")
    return out.compile("errors", f"{title} errors")


def _look_through(out: SourceWriter, layout: StructLayout, source: str) -> None:
    for field in _kept(layout):
        value = f"{source}.{field.name}"
        if field.name.endswith(_ERROR):
            with out.block(f"if {value}:"):
                out.line(f"found.append({value})")
        elif field.struct is not None and _has_errors(field.struct):
            item = out.fresh("m")
            # Either may be null.
            with out.block(f"for {item} in {value} or ():" if field.is_array else f"if {item} := {value}:"):
                _look_through(out, field.struct, item)


def _has_errors(layout: StructLayout) -> bool:
    return any(
        field.name.endswith(_ERROR) or (field.struct is not None and _has_errors(field.struct))
        for field in _kept(layout)
    )


def _kept(layout: StructLayout) -> list[FieldLayout]:
    fields = [*layout.fields, *(field for _, field in layout.tagged_fields)]
    return [field for field in fields if field.is_kept]
