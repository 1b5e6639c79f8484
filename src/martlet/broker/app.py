"""The wiring: every part of a broker is made, started and stopped here and nowhere else.

Start: take the addresses, open the metadata store, register and elect this process, open the logs, then serve. Stop
is the same backwards: refuse new work, answer what was asked, flush, write the clean marker, leave the metadata store.

Invariant: (A1) no client is served before every partition this broker leads carries a leader epoch that no earlier
process had.
"""

import asyncio
import contextlib
import dataclasses
import logging
import os
import platform
import socket
from collections.abc import Mapping
from functools import partial
from typing import Any, Final, cast

from martlet import __version__
from martlet.base.disk import Disk
from martlet.base.errors import ErrorCode, InvariantViolation, StorageFailure
from martlet.base.ids import BrokerId, Incarnation
from martlet.base.invariant import invariant
from martlet.base.randomness import IdSource
from martlet.broker.dispatch import Dispatcher
from martlet.broker.group_coordinator import GroupCoordinator
from martlet.broker.group_lag import GroupLag
from martlet.broker.group_settings import group_options, watch_groups
from martlet.broker.handlers import SERVED
from martlet.broker.housekeeping import Housekeeping
from martlet.broker.listener import Listener
from martlet.broker.metadata_feed import MetadataFeed
from martlet.broker.offsets_topic import OffsetsTopic
from martlet.broker.operations import OperationsServer
from martlet.broker.partition_table import LeaderIdentity, PartitionTable
from martlet.broker.ports import BrokerPorts
from martlet.broker.producer_ids import ProducerIdPool
from martlet.broker.registry import Api, MessageApi, build_registry
from martlet.broker.request import Address, parse_address
from martlet.broker.services import BrokerServices
from martlet.broker.settings import BrokerSettings
from martlet.broker.topic_admin import TopicAdmin
from martlet.broker.topic_settings import TopicSettings, static_configs
from martlet.broker.topics_view import ImageTopics
from martlet.cluster.broker_decisions import Registration
from martlet.cluster.image import ImageDelta, MetadataImage
from martlet.cluster.records import Endpoint
from martlet.cluster.store import MetaStore
from martlet.cluster.topic_decisions import TopicDefaults
from martlet.groups.machine import GroupsMachine
from martlet.log.log_directory import LogDirectory
from martlet.log.options import LogOptions
from martlet.observe.exposition import MetricsRegistry
from martlet.observe.loop_lag import LoopLagProbe
from martlet.observe.metrics import BrokerMetrics
from martlet.wire.api_keys import ApiKey, api_name
from martlet.wire.message_codec import prepare
from martlet.wire.records.index import codec_name

logger = logging.getLogger(__name__)

_BOOT_ID_FILE: Final = "/proc/sys/kernel/random/boot_id"
_KAFKA_LISTENER: Final = "kafka"
_FILES_RESERVED: Final = 64
_WARM_UP_PAUSE_SECONDS: Final = 0.01


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop where it is installed, asyncio's own loop elsewhere."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class BrokerApp:
    """One broker from `start` to `stop`, on the event loop that calls them."""

    def __init__(self, settings: BrokerSettings, ports: BrokerPorts | None = None) -> None:
        self.settings = settings
        self._ports = ports or BrokerPorts()
        self._clock = self._ports.clock
        self._disk = self._ports.disk
        self.kafka_address = parse_address(settings.kafka)
        self.operations_address = parse_address(settings.operations)
        self._log_path = os.path.join(os.path.abspath(settings.data), f"broker-{settings.broker_id}")
        self._failure: BaseException | None = None
        self._failed = asyncio.Event()
        self._metrics = BrokerMetrics(topic_series_max=settings.metrics_topics_max)
        self._not_ready = "the broker is starting"
        self._stack = contextlib.AsyncExitStack()

    async def start(self) -> None:
        """Return when clients are served; on failure everything already started is stopped again."""
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        self._not_ready = ""
        logger.info("broker %d serves Kafka clients on %s", self.settings.broker_id, self.kafka_address)

    async def stop(self) -> None:
        """Stop cleanly: what was acknowledged is on disk and the next start needs no recovery."""
        self._not_ready = "the broker is stopping"
        await self._stack.aclose()
        logger.info("broker %d stopped", self.settings.broker_id)

    def readiness(self) -> tuple[bool, str]:
        """Whether clients are served, and if not, why."""
        return not self._not_ready, self._not_ready

    # --- starting, in order; each step pushes its own undoing on the stack

    async def _start(self) -> None:
        asyncio.get_running_loop().set_exception_handler(self._callback_failed)
        settings = self.settings = within_file_limit(self.settings, self._ports.allow_files())
        listening = self._ports.bind(self.kafka_address)
        self._stack.callback(listening.close)
        self.kafka_address = Address(self.kafka_address.host, listening.getsockname()[1])
        await self._start_operations()
        log_path = self._log_path
        make_durable_directory(self._disk, log_path)
        self._stack.enter_context(self._ports.hold_directory(log_path))
        image, feed, store = await self._follow_store()
        static = static_configs(settings, kafka_address=str(self.kafka_address), log_directory=log_path)
        topic_settings = TopicSettings(settings, image, static)
        logs = LogDirectory(self._disk, log_path, LogOptions())
        logs.open(self._clock.now_ms(), topic_settings.options_for)
        admin, incarnation = await self._join_cluster(store, feed, topic_settings, was_clean=logs.started_clean)
        partitions = await self._open_partitions(logs, image, topic_settings, incarnation)
        feed.add_listener(partial(follow_metadata, partitions, image))
        housekeeping = Housekeeping(settings, self._clock, self._disk, logs, partitions)
        housekeeping.start()
        self._stack.push_async_callback(housekeeping.aclose)
        groups = self._start_groups(feed, admin, partitions)
        services = BrokerServices(
            settings=settings,
            clock=self._clock,
            cluster_id=image.cluster_id,
            image=image,
            admin=admin,
            partitions=partitions,
            topic_settings=topic_settings,
            producer_ids=ProducerIdPool(admin),
            groups=groups,
            logs=logs,
            metrics=self._metrics,
            registry=build_registry(SERVED),
            checkpoint=housekeeping.checkpoint,
            fail=self.fail,
        )
        self._start_group_lag(services)
        await self._serve(services, listening)

    async def _start_operations(self) -> None:
        address = self.operations_address
        names = {int(key): api_name(key) for key in ApiKey}
        info = {"version": __version__, "python": platform.python_version(), "record_codec": codec_name()}
        registry = MetricsRegistry(self._metrics, api_names=names, info=info)
        server = OperationsServer(address.host, address.port, registry, self.readiness)
        await server.start()
        self._stack.push_async_callback(server.aclose)
        self.operations_address = Address(address.host, server.port)

    async def _follow_store(self) -> tuple[MetadataImage, MetadataFeed, MetaStore]:
        store = await self._ports.open_store(self.settings.data, self._clock)
        self._stack.push_async_callback(store.close)
        image = MetadataImage()
        feed = MetadataFeed(store, image, on_failure=self.fail)
        await feed.start()
        self._stack.push_async_callback(feed.aclose)
        return image, feed, store

    async def _join_cluster(
        self, store: MetaStore, feed: MetadataFeed, topic_settings: TopicSettings, *, was_clean: bool
    ) -> tuple[TopicAdmin, Incarnation]:
        """Register this process and give every partition it leads a new epoch (A1)."""
        settings = self.settings
        defaults = TopicDefaults(settings.default_partitions, settings.default_replication_factor)
        ids = IdSource(self._ports.randomness)
        admin = TopicAdmin(store, feed, ids, self._clock, defaults, topic_settings.layers)
        host = parse_address(settings.advertised) if settings.advertised else self.kafka_address
        broker = await admin.register_broker(
            Registration(
                id=BrokerId(settings.broker_id),
                endpoints=[Endpoint(_KAFKA_LISTENER, host.host, host.port)],
                rack=settings.rack or None,
                boot_id=(self._disk.read_file(_BOOT_ID_FILE) or b"").decode().strip(),
                clean=was_clean,
            )
        )
        await admin.elect_own_partitions()
        return admin, broker.incarnation

    async def _open_partitions(
        self, logs: LogDirectory, image: MetadataImage, topic_settings: TopicSettings, incarnation: Incarnation
    ) -> PartitionTable:
        leader = LeaderIdentity(BrokerId(self.settings.broker_id), incarnation)
        partitions = PartitionTable(leader, image, logs, topic_settings, self._metrics, self._clock, self.fail)
        self._stack.push_async_callback(self._close_logs, logs, partitions)
        partitions.open_existing()
        # What survived a crash in the page cache is made durable before anybody can read it.
        await partitions.flusher.flush_all(partitions.open_partitions())
        return partitions

    async def _close_logs(self, logs: LogDirectory, partitions: PartitionTable) -> None:
        await partitions.flusher.flush_all(partitions.open_partitions())
        await partitions.flusher.aclose()
        logs.close(clean=self._failure is None)

    def _start_groups(self, feed: MetadataFeed, admin: TopicAdmin, partitions: PartitionTable) -> GroupCoordinator:
        topic = OffsetsTopic(feed.image, admin, self.settings.offsets_topic_partitions)
        options, ids = group_options(self.settings), IdSource(self._ports.randomness)
        make_machine = partial(GroupsMachine, options, ImageTopics(feed.image), ids)
        groups = GroupCoordinator(topic, partitions, make_machine, self._clock, self._metrics, self.fail)
        self._stack.push_async_callback(groups.aclose)
        groups.start()
        feed.add_listener(groups.follow)
        watch_groups(groups, self._metrics)
        return groups

    def _start_group_lag(self, services: BrokerServices) -> None:
        settings = self.settings
        lag = GroupLag(
            services.groups.machines,
            services.partitions.opened,
            self._clock,
            interval_ms=settings.group_lag_interval_ms,
            groups_max=settings.metrics_groups_max,
        )
        lag.start(self._metrics)
        self._stack.push_async_callback(lag.aclose)

    async def _serve(self, services: BrokerServices, listening: socket.socket) -> None:
        dispatcher = Dispatcher(services)
        self._stack.push_async_callback(dispatcher.aclose)
        probe = LoopLagProbe(self._metrics.loop_lag_seconds)
        probe.start()
        self._stack.callback(probe.stop)
        listener = Listener(self.settings, dispatcher, self._clock)
        await listener.start(listening)
        self._watch_gauges(services, listener)
        warm_up = asyncio.create_task(prepare_codecs(services.registry), name="martlet-warm-up")
        self._stack.callback(warm_up.cancel)
        self._stack.push_async_callback(listener.aclose, self.settings.shutdown_timeout_ms)
        # Before that: a member that waits for its group could wait longer than a stop may take.
        self._stack.callback(services.groups.stop_parking)

    def _watch_gauges(self, services: BrokerServices, listener: Listener) -> None:
        watch = self._metrics.watch
        path = services.logs.path
        watch("martlet_partitions", "Partitions with a log on this broker.", lambda: len(services.logs))
        watch("martlet_disk_free_bytes", "Free bytes where the logs are.", lambda: self._disk.free_bytes(path))
        watch("martlet_log_bytes", "Bytes of all logs.", lambda: sum(log.size_bytes for log in services.logs))
        watch("martlet_in_flight_bytes", "Bytes of half-received large requests.", lambda: listener.in_flight_bytes)
        refusing = services.partitions
        watch(
            "martlet_publishes_refused",
            "1 while publishes are refused because the disk is full.",
            lambda: int(refusing.full_since_ms is not None),
        )

    def fail(self, error: BaseException) -> None:
        """Going on would make things worse: the process is to end, without a clean marker.

        A stop that follows leaves what is on disk to be recovered by the next start.
        """
        self._not_ready = f"the broker has failed: {error}"
        if self._failure is None:
            logger.critical("the broker must stop: %s", error)
            self._failure = error
            self._failed.set()

    def _callback_failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A timer or callback of ours raised: nobody else would notice."""
        self._metrics.errors_total[ErrorCode.UNKNOWN_SERVER_ERROR] += 1
        error = context.get("exception")
        logger.error("%s", context.get("message"), exc_info=error)
        if isinstance(error, InvariantViolation):
            self.fail(error)

    async def wait_failed(self) -> BaseException:
        """Return the reason once the broker has failed; for whoever runs the process."""
        await self._failed.wait()
        invariant(self._failure is not None, "a failed broker has a reason")
        return cast(BaseException, self._failure)


async def prepare_codecs(registry: Mapping[int, Api]) -> None:
    """Compile the codecs of the newest versions one by one, so that first requests find them ready."""
    for api in registry.values():
        if isinstance(api, MessageApi):
            prepare(api.request, api.versions.last)
            await asyncio.sleep(_WARM_UP_PAUSE_SECONDS)


def follow_metadata(partitions: PartitionTable, image: MetadataImage, delta: ImageDelta) -> None:
    """Bring the open partitions in step with a change of the metadata."""
    for topic in delta.topics_deleted:
        partitions.topic_deleted(topic)
    for _, topic in delta.topics_changed:
        partitions.topic_changed(topic)
    if delta.broker_configs:
        for topic in image.topics():
            partitions.topic_changed(topic)


def make_durable_directory(disk: Disk, path: str) -> None:
    """Make the directory and see to it that no power loss can take it, or one above it, with all it holds.

    Every name on the way is synced at every start: an earlier process may have died before it could.
    """
    disk.make_directory(path)
    while (parent := os.path.dirname(path)) != path:
        try:
            disk.sync_directory(parent)
        except StorageFailure as failure:
            logger.info("cannot make sure that %s survives a power loss: %s", path, failure)
        path = parent


def within_file_limit(settings: BrokerSettings, file_limit: int) -> BrokerSettings:
    """Keep a part of the open files for segments, whatever the number of connections asked for."""
    connections_max = max(1, file_limit - max(file_limit // 4, _FILES_RESERVED))
    if settings.connections_max <= connections_max:
        return settings
    logger.info("only %d connections can be served: the system allows %d open files", connections_max, file_limit)
    return dataclasses.replace(settings, connections_max=connections_max)
