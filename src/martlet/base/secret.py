"""A value that must never be read by accident: passwords, tokens, private keys.

Rules: its text in any form is `***`, it compares in constant time, and it cannot be pickled or copied into JSON. Only
`reveal` gives the value, so that `grep reveal` finds every place that handles one. Settings hide a value by this type,
never by the name of the setting.

Proved by: tests/unit/base/test_secret.py
"""

import hmac
from typing import Final, NoReturn

HIDDEN: Final = "***"


class Secret:
    """One secret text; empty texts are refused, because nothing is proven by one."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        if not text:
            raise ValueError("a secret must not be empty")
        self._text = text

    def reveal(self) -> str:
        """The value itself; whatever takes it must not keep it in what is printed, logged or sent on."""
        return self._text

    def __repr__(self) -> str:
        return HIDDEN

    def __format__(self, spec: str) -> str:
        return format(HIDDEN, spec)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._text.encode(), other._text.encode())

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not pickled")
