"""Messages a second with confluent-kafka, the client most Python programs use: what a user gets, not what is possible.

For information only. On a machine with few processors these figures are the client's far more than the broker's.
"""

from bench.processes import BrokerProcess, run_helper
from bench.report import Figure, say
from bench.rounds import Context, settle

_TOPIC = "clients"


def clients(context: Context) -> list[Figure]:
    """Publish and read back 1 KB and 100 B values with the default flush policy."""
    figures = []
    for value_bytes, label in ((1024, "1 KB"), (100, "100 B")):
        count = context.sized(1_000_000 if value_bytes == 100 else 400_000, 20_000)
        publish = Figure(f"confluent-kafka publish {label}", "msg/s", note="for information; acks=all, default flush")
        consume = Figure(f"confluent-kafka consume {label}", "msg/s", note="for information")
        for _ in range(min(context.rounds, 3)):
            with context.directory("clients") as directory, BrokerProcess(directory) as broker:
                broker.start_and_wait()
                with broker.client() as client:
                    client.create_topics([_TOPIC])
                    client.topic(_TOPIC)
                settle()
                load = {"port": broker.port, "topic": _TOPIC, "count": count, "value_bytes": value_bytes}
                publish.add(run_helper("bench.confluent_load", load | {"role": "publish"})["rate"])
                consume.add(run_helper("bench.confluent_load", load | {"role": "consume"})["rate"])
                broker.kill()
            say(f"  confluent-kafka {label}: {publish.values[-1]:,.0f} and {consume.values[-1]:,.0f} msg/s")
        figures += [publish, consume]
    return figures
