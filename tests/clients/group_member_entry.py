"""Starts one member of a group in a process of its own, to be killed: KIND SERVERS GROUP TOPIC NAME."""

import sys
import warnings

if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from tests.clients.group_members import run_forever
    run_forever(*sys.argv[1:6])
