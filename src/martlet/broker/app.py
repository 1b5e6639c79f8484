"""The wiring: every part of a broker is made, started and stopped here and nowhere else.

Start: take the address, open the metadata store, register and elect this process, open the logs, then serve. Stop is
the same backwards: refuse new work, answer what was asked, flush, write the clean marker, leave the metadata store.

Invariant: (A1) no client is served before every partition this broker leads carries a leader epoch that no earlier
process had.
"""

import asyncio
import logging
from typing import Final

logger = logging.getLogger(__name__)

_METADATA_FILE: Final = "metadata.sqlite"


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop where it is installed, asyncio's own loop elsewhere."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
