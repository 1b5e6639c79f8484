"""The codec of group records, which on the way counts what operators want to see."""

from martlet.groups.record_codec import GroupRecordCodec
from martlet.groups.records import ClassicGroupStored, OffsetCommitted, TargetEpochStored
from martlet.observe.metrics import BrokerMetrics


class CountingCodec:
    """Implements `coordinator.result.RecordCodec`."""

    def __init__(self, metrics: BrokerMetrics) -> None:
        self._metrics = metrics
        self._codec = GroupRecordCodec()

    def encode(self, record: object) -> tuple[bytes, bytes | None] | None:
        kind = type(record)
        if kind is OffsetCommitted:
            self._metrics.offset_commits += 1
        elif kind is TargetEpochStored or (isinstance(record, ClassicGroupStored) and record.members):
            self._metrics.group_rebalances += 1
        return self._codec.encode(record)

    def decode(self, key: bytes, value: bytes | None) -> object | None:
        return self._codec.decode(key, value)
