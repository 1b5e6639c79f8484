"""Tells the C library's allocator to keep large blocks it gets back, for a process that is a broker and nothing else.

Answers to fetches are megabytes of bytes that live for a moment. By default glibc returns each to the kernel and asks
for it again at the next fetch, which costs a page fault for every 4 kB. Elsewhere than on glibc nothing happens.
"""

import ctypes
from typing import Final

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_KEPT_BLOCK_BYTES: Final = 32 << 20
"""Blocks up to this size come from the heap and go back to it; it is the most glibc accepts."""
_KEPT_FREE_BYTES: Final = 64 << 20
"""Free memory at the heap's end that is kept."""


def keep_large_blocks() -> bool:
    """Set both thresholds; False where the C library does not know them."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _KEPT_BLOCK_BYTES) and mallopt(_M_TRIM_THRESHOLD, _KEPT_FREE_BYTES))
