"""The messages of our own APIs: what their tables say is what the classes hold, and bytes come back as they were."""

import importlib
import pkgutil
from typing import Any

import pytest

from martlet.base.errors import ProtocolViolation
from martlet.wire import messages
from martlet.wire.api_keys import FIRST_OWN_KEY, ApiKey
from martlet.wire.layout import StructLayout, class_fields, message_layout
from martlet.wire.message_codec import decode, encode
from martlet.wire.messages.end_transaction_group import EndTransactionGroupRequest, Winner

MODULES = [
    importlib.import_module(f"{messages.__name__}.{entry.name}") for entry in pkgutil.iter_modules(messages.__path__)
]
OWN = [(cls, table) for module in MODULES for cls, table in getattr(module, "TABLES", {}).items()]
SAMPLES = {"h": 7, "i": 70_000, "q": 1 << 40, "?": True, "16s": bytes(range(16)), "string": "text", "bytes": b"some"}


def filled(layout: StructLayout) -> Any:
    """A message in which every field differs from its default."""
    fields = {}
    for field in layout.fields:
        value = filled(field.struct) if field.struct is not None else SAMPLES[field.format]
        fields[field.name] = [value, value] if field.is_array else value
    assert layout.message_class is not None
    return layout.message_class(**fields)


def test_every_api_of_our_own_has_a_request_and_a_response() -> None:
    names = {cls.__name__ for cls, _ in OWN}
    for key in ApiKey:
        if key >= FIRST_OWN_KEY:
            words = "".join(word.capitalize() for word in key.name.split("_"))
            assert {f"{words}Request", f"{words}Response"} <= names


@pytest.mark.parametrize(("cls", "table"), OWN, ids=[cls.__name__ for cls, _ in OWN])
def test_a_table_has_the_fields_of_its_class_and_gives_messages_back(cls: type[Any], table: Any) -> None:
    layout = message_layout(cls, table.newest)
    assert [field.name for field in layout.fields] == list(class_fields(cls))
    for sample in (cls(), filled(layout)):
        assert decode(cls, 0, encode(sample, 0)) == sample
    with pytest.raises(ValueError, match="no version"):
        encode(cls(), table.newest + 1)


def test_a_message_cut_short_is_refused() -> None:
    data = encode(EndTransactionGroupRequest("g", 1, 2, 3, [Winner("txg:g#0.3.0.0", 4, 5)], b"note"), 0)
    for end in range(len(data)):
        with pytest.raises(ProtocolViolation):
            decode(EndTransactionGroupRequest, 0, data[:end])
