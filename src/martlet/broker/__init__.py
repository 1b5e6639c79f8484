"""The broker process: the asyncio shell in which the rules of the packages below meet sockets, threads and timers.

`app.py` puts everything together, over the real machine of `machine_ports.py` or a simulated one. The folders are
layers, and imports only go down this list (a contract in `pyproject.toml`):

- `handlers/`: one file per API
- `parked/`: requests that wait for replicas or for data
- `serving/`: from the socket to the handler and back
- `services.py`: the parts of a running broker, for the handlers
- `coordinators/`: hosts the machines of groups
- `administration/` changes the cluster, `leading/` and `following/` replicate, `routing/` tells clients where to go
- `membership/`: holds this process in its cluster, and reads and changes the cluster's metadata
- `partitions/`: the replicas on this broker
- `ground/`: settings, ports, workers, the request and its reply
"""
