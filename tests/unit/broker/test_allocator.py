"""The allocator's thresholds are glibc's own business; here only that asking is safe and says whether it helped."""

import platform

from martlet.broker.allocator import keep_large_blocks


def test_thresholds_are_accepted_exactly_where_the_c_library_is_glibc() -> None:
    assert keep_large_blocks() is (platform.libc_ver()[0] == "glibc")
