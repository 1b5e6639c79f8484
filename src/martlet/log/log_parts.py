"""What one log is made of: each part is one object for as long as the log is open, so that all who need it share it."""

from typing import NamedTuple

from martlet.base.disk import Disk
from martlet.base.ids import TopicPartition
from martlet.log.batch_order import GapRecord
from martlet.log.epoch_cache import EpochCache
from martlet.log.producer_snapshot import ProducerSnapshots
from martlet.log.producer_state import ProducerStates
from martlet.log.segment_list import SegmentList


class LogParts(NamedTuple):
    """The parts of one partition's log and where it lives."""

    disk: Disk
    directory: str
    partition: TopicPartition
    segments: SegmentList
    epochs: EpochCache
    producers: ProducerStates
    snapshots: ProducerSnapshots
    gaps: GapRecord
