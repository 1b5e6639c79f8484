"""Why a client was not let in.

The reason is for the audit and the log of this broker. A client hears one sentence for all of them, so that it cannot
find out which users there are.
"""

from typing import Final

from martlet.base.errors import MartletError

REFUSED_TEXT: Final = "Authentication failed: the credentials were refused."
"""What a client hears, whatever the reason."""


class AuthenticationRefused(MartletError):
    """A client could not prove who it is; the text never holds what the client sent."""
