"""The broker process: the asyncio shell in which the rules of the rooms below meet sockets, threads and timers.

Everything is put together in one place, `app.py`.

`serving/` takes a request from its socket to its handler, `handlers/` has one file per API, `partitions/` keeps the
replicas, `replicas/` copies between brokers, `coordinators/` hosts groups, `routing/` tells clients where to go,
`membership/` holds this process in its cluster, and `administration/` changes the cluster.
"""
