"""The value that several responses carry where the client did not ask which operations it is allowed."""

from typing import Final

OPERATIONS_NOT_REQUESTED: Final = -2147483648
