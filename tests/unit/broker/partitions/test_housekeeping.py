"""What housekeeping leaves for the next start, however this process ends."""

from martlet.broker.app import follow_metadata
from martlet.broker.ground.settings import BrokerSettings
from martlet.broker.partitions.housekeeping import Housekeeping
from martlet.cluster.keys import partition_key, topic_key
from martlet.cluster.store import CommitPlan
from tests.unit.broker.replica_table_bench import SECOND, TOPIC_ID, ReplicaTableBench, record


async def test_a_kill_after_a_topic_was_deleted_does_not_count_as_the_loss_of_its_logs() -> None:
    bench = ReplicaTableBench()
    bench.store(record(leader=SECOND))
    bench.logs.checkpoint()
    delta = bench.metadata.commit(CommitPlan(deletes=(topic_key("orders"), partition_key(TOPIC_ID, 0))))
    follow_metadata(bench.table, bench.metadata.image, delta)
    settings = bench.services.topic_settings
    housekeeping = Housekeeping(BrokerSettings(), bench.clock, bench.logs, bench.table, bench.metrics, settings)
    await housekeeping.apply_retention()
    await housekeeping.aclose()
    await bench.table.flusher.aclose()
    bench.logs.close(clean=False)
    assert not [name for name, is_directory, _ in bench.disk.list_directory("/logs") if is_directory]
    assert ReplicaTableBench(bench.disk, bench.metadata).logs.started_whole
