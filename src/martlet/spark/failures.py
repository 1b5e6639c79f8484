"""What the data source refuses or cannot do, each with one sentence that says what to do about it.

MartletError
├── OptionRefused    an option is wrong, unknown, missing or not offered
├── ColumnsRefused   the columns of a frame are not what a message has
└── MessagesLost     messages that were to be read are gone, and failOnDataLoss says not to go on
"""

from martlet.base.errors import MartletError


class OptionRefused(MartletError):
    """An option of the reader or writer that cannot be followed."""


class ColumnsRefused(MartletError):
    """The frame, or the schema asked for, does not fit messages."""


class MessagesLost(MartletError):
    """The stream cannot go on without leaving out messages."""
