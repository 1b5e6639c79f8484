"""Bytes in, values out: framing, headers, messages, record batches, compression.

Rules: nothing here does I/O, knows a clock or keeps state beyond one connection's receive buffer. Whatever a peer
sends, a decoder either returns a value or raises ProtocolViolation (or, inside a batch, ApiError), after work bounded
by the number of bytes that came, not by a number they contain.

Two ways to decode, on purpose. The codecs of messages (`messages/`, `message_codec`) are generated from the protocol's
schema. Produce and the responses of Fetch (`produce`, `fetch`) carry records, so their codecs are written by hand and
never copy them.
"""
