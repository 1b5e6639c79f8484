"""The requests and responses of the protocol as plain dataclasses, one module per API, named like Kafka's schema.

Rules: a class serves all versions of its API. It holds the union of their fields, each with a default, and says nothing
about bytes: order, width, nullability and tags of a version come from the schema when `wire.message_codec` compiles it.
A module imports nothing but `dataclasses` and the constants here.

Names are the schema's with these exceptions, so that no library types get out:

MSGF-1 Durations and instants are integers of milliseconds and their names end in `_ms`.
MSGF-2 A UUID is sixteen bytes, all zero for null.
MSGF-3 Error codes are plain integers (members of `ErrorCode` are integers too).

A default is the schema's, else zero, empty or, for what may be null, None. Arrays default to empty even where they may
be null, unless the class says otherwise. A field that a version does not have keeps its default when read and is left
out when written.

Adding an API is adding a module here: `<api>.py` with the class `<Api>Request` or `<Api>Response` and what they nest,
each named as in the schema.

Proved by: tests/unit/wire/test_message_schemas.py, tests/properties/test_message_codec.py
"""
