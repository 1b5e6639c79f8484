"""The cluster's topics as the groups machine sees them: its port, served from the metadata image."""

from collections.abc import Iterable

from martlet.base.ids import TopicId
from martlet.cluster.image import MetadataImage
from martlet.cluster.records import TopicRecord
from martlet.groups.ports import TopicView


class ImageTopics:
    """Reads the image; holds nothing."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image

    def topic(self, name: str) -> TopicView | None:
        record = self._image.topic(name)
        return self._view(record) if record is not None else None

    def topic_by_id(self, topic_id: TopicId) -> TopicView | None:
        record = self._image.topic_by_id(topic_id)
        return self._view(record) if record is not None else None

    def names(self) -> Iterable[str]:
        """Topics a client may subscribe to."""
        return [record.name for record in self._image.topics() if not record.internal]

    def _view(self, record: TopicRecord) -> TopicView:
        return TopicView(record.id, record.name, record.partition_count, self._racks(record))

    def _racks(self, record: TopicRecord) -> tuple[frozenset[str], ...]:
        rack_of = {broker.id: broker.rack for broker in self._image.brokers() if broker.rack}
        if not rack_of:
            return ()
        return tuple(
            frozenset(rack_of[replica] for replica in partition.replicas if replica in rack_of)
            for partition in self._image.partitions(record.name)
        )
