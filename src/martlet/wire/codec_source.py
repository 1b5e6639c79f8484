"""Writing Python source: lines, indentation, fresh names, constants, and turning the result into a function.

Rules: nothing about the protocol here; `decoder_source`, `encoder_source` and `error_source` know that. Only text that
those modules produce from the schema is ever compiled. No byte that came from a peer gets here.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class SourceWriter:
    """Collects the source of one function; used once and thrown away."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._depth = 0
        self._names = 0
        self._namespace: dict[str, Any] = {}

    def line(self, text: str) -> None:
        self._lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Everything written inside is indented below `head`."""
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1

    def fresh(self, stem: str) -> str:
        """A variable no other part of the function uses."""
        self._names += 1
        return f"{stem}{self._names}"

    def constant(self, stem: str, value: object) -> str:
        """A fresh name that means `value` inside the function."""
        name = self.fresh(stem)
        self._namespace[name] = value
        return name

    def provide(self, **values: object) -> None:
        """Make `values` known inside the function by these names."""
        self._namespace.update(values)

    @property
    def source(self) -> str:
        return "\n".join(self._lines) + "\n"

    def compile(self, function: str, title: str) -> Callable[..., Any]:
        """The function of that name; `title` appears in tracebacks in place of a file."""
        code = compile(self.source, f"<{title}>", "exec")
        # The source is made of the schema's names and our own text, never of input.
        exec(code, self._namespace)  # noqa: S102
        compiled: Callable[..., Any] = self._namespace[function]
        return compiled
