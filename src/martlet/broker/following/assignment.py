"""Copying what this broker follows: which partition is fetched from whom, following the metadata.

How it works: every leader broker has a fetcher with one connection and one request under way. The partition table says
which partitions have another role, leader or epoch now; each then belongs to the fetcher of its leader, or to none. The
throttle on moves follows the settings of this broker and of the topics, so that it can be changed while they run.

Proved by: tests/unit/broker/following/test_assignment.py
"""

import asyncio
from collections.abc import Collection, Iterable, Iterator
from typing import Protocol

from martlet.base.ids import BrokerId
from martlet.broker.following.connection import FetcherContext, ReplicaFetchOptions, ReplicaPorts
from martlet.broker.following.fetcher import ReplicaFetcher
from martlet.broker.following.partition import FollowingPartition
from martlet.broker.following.request import ReplicaIdentity
from martlet.broker.following.throttle import ReplicaThrottle
from martlet.cluster.image import ImageDelta, MetadataImage
from martlet.cluster.move_throttle import throttled_rate
from martlet.configs.effective import BrokerLayers
from martlet.observe.metrics import OTHER_TOPICS, BrokerMetrics


class FollowingTable(Protocol):
    """The partition table, as far as fetchers use it."""

    def following(self) -> Iterable[FollowingPartition]: ...


class ReplicaFetching:
    """Owner of all fetchers. `roles_changed` and `follow_brokers` do nothing before `start` or after `aclose`."""

    def __init__(
        self,
        table: FollowingTable,
        image: MetadataImage,
        identity: ReplicaIdentity,
        options: ReplicaFetchOptions,
        ports: ReplicaPorts,
        metrics: BrokerMetrics,
    ) -> None:
        self._table = table
        self._context = FetcherContext(
            image, identity, options, ports, metrics, ReplicaThrottle(options.throttle_bytes)
        )
        self._fetchers: dict[BrokerId, ReplicaFetcher] = {}
        self._fetcher_of: dict[FollowingPartition, ReplicaFetcher] = {}
        self._is_running = False

    def start(self) -> None:
        """Begin with what is followed now."""
        self._is_running = True
        self._read_rate()
        self.roles_changed(list(self._table.following()))
        self._watch()

    async def aclose(self) -> None:
        """Fetch nothing any more; to be called before the logs are closed."""
        self._is_running = False
        fetchers, self._fetchers = list(self._fetchers.values()), {}
        self._fetcher_of.clear()
        await asyncio.gather(*(fetcher.aclose() for fetcher in fetchers))

    def roles_changed(self, partitions: Collection[FollowingPartition]) -> None:
        """These may have another role, leader or epoch than before."""
        if not self._is_running:
            return
        for partition in partitions:
            before = self._fetcher_of.pop(partition, None)
            leader = partition.leader_broker
            follows = partition.follower is not None and leader is not None and not partition.offline
            after = self._fetcher(leader) if follows and leader is not None else None
            if before is not None and before is not after:
                before.unfollow(partition)
            if after is not None:
                self._fetcher_of[partition] = after
                after.follow(partition)

    def follow_brokers(self, delta: ImageDelta) -> None:
        """Hang up on leaders that have registered again."""
        for change in delta.brokers:
            record = change.after or change.before
            fetcher = self._fetchers.get(record.id) if record is not None else None
            if fetcher is not None:
                fetcher.leader_changed()

    def follow_settings(self, delta: ImageDelta) -> None:
        """Go by the throttle as it is now."""
        if not self._is_running or not (delta.broker_configs or delta.topics_changed):
            return
        throttle = self._context.move_throttle
        before = throttle.rate
        self._read_rate()
        if throttle.rate != before or (throttle.limits and delta.topics_changed):
            for fetcher in self._fetchers.values():
                fetcher.throttle_changed()

    def _read_rate(self) -> None:
        image, me = self._context.image, self._context.identity.me
        layers = BrokerLayers(
            dynamic_broker=image.broker_configs(me.broker), dynamic_default=image.broker_configs(None)
        )
        rate = throttled_rate(layers)
        if rate != self._context.move_throttle.rate:
            self._context.move_throttle.change_rate(rate, asyncio.get_running_loop().time())

    def _fetcher(self, leader: BrokerId) -> ReplicaFetcher:
        fetcher = self._fetchers.get(leader)
        if fetcher is None:
            fetcher = self._fetchers[leader] = ReplicaFetcher(leader, self._context)
            fetcher.start()
        return fetcher

    # --- numbers

    def _watch(self) -> None:
        self._context.metrics.watch_table(
            "martlet_following_lag_messages",
            "Committed messages that replicas on this broker lack, by topic.",
            ("topic",),
            self._lag_rows,
        )

    def _lag_rows(self) -> Iterator[tuple[tuple[str, ...], float]]:
        """One row for each topic that is behind; those without metrics of their own together."""
        lags: dict[str, int] = {}
        own = self._context.metrics.topics
        for fetcher in self._fetchers.values():
            for followed in fetcher.followed():
                lag = followed.lag_messages
                if lag:
                    topic = followed.partition.name.topic
                    label = topic if topic in own else OTHER_TOPICS
                    lags[label] = lags.get(label, 0) + lag
        for topic, lag in sorted(lags.items()):
            yield (topic,), lag
