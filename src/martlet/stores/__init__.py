"""The metadata stores that a broker can run on, each behind the port of `martlet.cluster.store`.

`sqlite.py` keeps everything in one file, for one host; `etcd.py` in an etcd cluster, for brokers on several. Nothing
outside this folder imports a store's driver, and nothing here knows what the keys and values mean.
"""
