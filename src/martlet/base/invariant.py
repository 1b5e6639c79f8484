"""The one way to state what must be true: unlike `assert` it survives `python -O`.

A broken invariant is a bug in Martlet, never bad input; it stops the process instead of spreading.
"""

from martlet.base.errors import InvariantViolation


def invariant(condition: object, statement: str) -> None:
    """Raise InvariantViolation unless `condition` holds; `statement` says what should have been true."""
    if not condition:
        raise InvariantViolation(statement)
