"""The broker process: listener, connections, one handler file per API, parked requests, and the wiring.

This is the asyncio shell. Rules of the protocol, the log and the cluster live in the rooms below; here they
meet sockets, threads and timers. Everything is put together in one place, `app.py`.
"""
