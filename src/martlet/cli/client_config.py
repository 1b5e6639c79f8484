"""The file that says how verbs protect their connections and who they are: `name=value` lines under Kafka's names.

It may hold a password, so one that others may read is refused.
"""

import os
import stat

from martlet.client.security import ClientSecurity, security_from


def read_client_config(path: str) -> ClientSecurity:
    """The security that the file describes; raises ValueError with a sentence that names it."""
    try:
        with open(path, encoding="utf-8") as file:
            is_open = bool(os.fstat(file.fileno()).st_mode & stat.S_IRWXO)
            lines = file.read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read: {getattr(error, 'strerror', None) or 'it is not text'}") from None
    values: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if text and not text.startswith(("#", "!")):
            name, separator, value = text.partition("=")
            if not separator:
                raise ValueError(f"{path}, line {number}: this is not NAME=VALUE")
            values[name.strip()] = value.strip()
    if is_open and values.get("sasl.password"):
        raise ValueError(f"{path} holds a password and may be read by others; chmod 600 it")
    try:
        return security_from(values)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
