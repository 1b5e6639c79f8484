"""The wiring: every part of a broker is made, started and stopped here and nowhere else.

Start: take the addresses, open the metadata store, make sure that this process may be its broker, open the logs,
register, take a lease, elect this process where no other can lead, then serve. Stop: hand leaderships over, then the
same backwards: refuse new work, answer what was asked, flush, write the clean marker, give the lease back.

Invariant: APP-1 no client is served before every partition this broker leads carries a leader epoch that no earlier
process had.
"""

import asyncio
import contextlib
import logging
import os
import platform
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final, Protocol, TypeVar, cast

from martlet import __version__
from martlet.base.addresses import Address, parse_address
from martlet.base.disk import Disk
from martlet.base.errors import DiskFull, ErrorCode, InvariantViolation, StorageFailure
from martlet.base.ids import BrokerId, Member, TopicId, TopicPartition
from martlet.base.invariant import invariant
from martlet.base.randomness import IdSource
from martlet.broker.access.parts import Access, make_access
from martlet.broker.administration.config_admin import ConfigAdmin
from martlet.broker.administration.controller import Controller, ControllerOptions
from martlet.broker.administration.damaged_replicas import DamagedReplicas
from martlet.broker.administration.log_end_reports import LogEndReports
from martlet.broker.administration.partition_admin import PartitionAdmin
from martlet.broker.administration.topic_admin import TopicAdmin
from martlet.broker.coordinators.coordinator_host import CoordinatorHost
from martlet.broker.coordinators.group_lag import GroupLag
from martlet.broker.coordinators.groups import (
    GroupCoordinator,
    ImageTopics,
    consumer_times,
    group_kind,
    group_options,
    offsets_topic,
    share_times,
    watch_groups,
)
from martlet.broker.coordinators.transaction_parts import CoordinatorParts, make_transactions
from martlet.broker.following.assignment import ReplicaFetching
from martlet.broker.following.connection import ReplicaFetchOptions, ReplicaPorts
from martlet.broker.following.request import ReplicaIdentity
from martlet.broker.ground.disk_space import DiskSpace
from martlet.broker.ground.listeners import configured_listeners
from martlet.broker.ground.peer_connection import Connect
from martlet.broker.ground.ports import BrokerPorts
from martlet.broker.ground.settings import BrokerSettings
from martlet.broker.handlers import SERVED
from martlet.broker.leading.in_sync_keeper import InSyncKeeper
from martlet.broker.machine_ports import machine_ports
from martlet.broker.membership.broker_registration import registered_endpoints
from martlet.broker.membership.lease_keeper import LeaseKeeper
from martlet.broker.membership.membership import LogsFound, Membership, until_in_reach
from martlet.broker.membership.metadata_changes import MetadataChanges
from martlet.broker.membership.metadata_commits import MetadataCommits
from martlet.broker.membership.metadata_feed import MetadataFeed
from martlet.broker.membership.metadata_store import until_reached
from martlet.broker.operations import OperationsServer
from martlet.broker.partitions.housekeeping import Housekeeping
from martlet.broker.partitions.partition_table import PartitionTable
from martlet.broker.partitions.replica_gauges import watch_replicas
from martlet.broker.partitions.topic_settings import TopicSettings, static_configs
from martlet.broker.queueing.parts import make_queues, make_share
from martlet.broker.routing.cluster_view import ClusterView
from martlet.broker.routing.departures import Departures
from martlet.broker.services import BrokerServices
from martlet.broker.serving.dispatch import Dispatcher
from martlet.broker.serving.door import Door
from martlet.broker.serving.registry import Api, MessageApi, build_registry
from martlet.broker.serving.server import KafkaServer, bind_all
from martlet.cluster.broker_decisions import Registration
from martlet.cluster.image import ImageDelta, MetadataImage
from martlet.cluster.store import MetaStore
from martlet.cluster.topic_decisions import TopicDefaults
from martlet.coordinator.snapshots import SnapshotRule
from martlet.log.batch_order import EPOCH_MAX
from martlet.log.log_directory import LogDirectory
from martlet.log.options import LogOptions
from martlet.observe.exposition import MetricsRegistry
from martlet.observe.loop_lag import LoopLagProbe
from martlet.observe.metrics import NO_API, BrokerMetrics
from martlet.wire import fetch
from martlet.wire.api_keys import ApiKey, Versions, api_name
from martlet.wire.message_codec import prepare
from martlet.wire.records.index import codec_name

logger = logging.getLogger(__name__)

_FILES_RESERVED: Final = 64
_WARM_UP_PAUSE_SECONDS: Final = 0.01


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop where it is installed, asyncio's own loop elsewhere."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class Part(Protocol):
    """What runs from the start of a broker to its stop."""

    def start(self) -> None: ...

    async def aclose(self) -> None: ...


P = TypeVar("P", bound=Part)


class BrokerApp:
    """One broker from `start` to `stop`, on the event loop that calls them."""

    def __init__(self, settings: BrokerSettings, ports: BrokerPorts | None = None) -> None:
        self.settings = settings
        self._ports = ports or machine_ports()
        self._clock = self._ports.clock
        self._disk = self._ports.disk
        self.listeners = configured_listeners(settings)
        self.operations_address = parse_address(settings.operations)
        self._log_path = os.path.join(os.path.abspath(settings.data), f"broker-{settings.broker_id}")
        self._failure: BaseException | None = None
        self._failed = asyncio.Event()
        self._metrics = BrokerMetrics(topic_series_max=settings.metrics_topics_max)
        self._not_ready = "the broker is starting"
        self._connections_possible = 0
        self._stack = contextlib.AsyncExitStack()
        self._membership: Membership | None = None
        self._on_share_member_left: list[Callable[[str, str], None]] = []
        self.services: BrokerServices | None = None
        """The running broker's parts, from when they are all made."""

    @property
    def kafka_address(self) -> Address:
        """Where the first listener serves clients; the port is the one that was taken once the broker has started."""
        return self.listeners.all[0].address

    async def start(self) -> None:
        """Return when clients are served; on failure everything already started is stopped again."""
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        self._not_ready = ""
        for one in self.listeners.all:
            logger.info("broker %d serves Kafka clients on %s (%s)", self.settings.broker_id, one.address, one.name)

    async def stop(self) -> None:
        """Stop cleanly: what was acknowledged is on disk and the next start needs no recovery."""
        self._not_ready = "the broker is stopping"
        if self._membership is not None and self._failure is None and self.services is not None:
            await self._membership.leave(self.settings.shutdown_timeout_ms)
        await self._stack.aclose()
        logger.info("broker %d stopped", self.settings.broker_id)

    def readiness(self) -> tuple[bool, str]:
        """Whether clients are served, and if not, why."""
        reason = self._not_ready
        if not reason and not self.may_act():
            reason = "the broker has lost touch with the metadata store"
        if not reason and self.services is not None:
            reason = (
                self.services.groups.reason_not_ready() or self.services.transactions.coordinator.reason_not_ready()
            )
        return not reason, reason

    def may_act(self) -> bool:
        """Whether the cluster still counts on this process."""
        return self._membership is not None and self._membership.keeper.may_act()

    # --- starting, in order; each step pushes its own undoing on the stack

    async def _start(self) -> None:
        asyncio.get_running_loop().set_exception_handler(self._callback_failed)
        self._connections_possible = connections_possible(self._ports.allow_files())
        settings = self.settings = within_file_limit(self.settings, self._connections_possible)
        self._hold_addresses()
        await self._start_operations()
        path = hold_directory(self._ports, self._stack, self._log_path)
        feed, store = await self._follow_store()
        image, commits, changes = feed.image, MetadataCommits(store, feed), MetadataChanges(store, feed)
        topic_settings = TopicSettings(settings, image, static_configs(settings, self.listeners, log_directory=path))
        space = DiskSpace(partial(self._disk.free_bytes, path), settings.disk_reserve_bytes, self._clock)
        space.measure()
        membership = await self._make_membership(commits, feed, changes, space)
        logs = LogDirectory(self._disk, path, LogOptions())
        logs.open(self._clock.now_ms(), topic_settings.options_for, partial(latest_epoch, image))
        me = await self._join_cluster(membership, logs)
        topic_admin = await self._make_topic_admin(changes, me, topic_settings)
        partitions = PartitionTable(me, image, logs, topic_settings, self._metrics, self._clock, self.fail)
        self._connect_partitions(partitions, membership, space)
        damaged = DamagedReplicas(me, partitions, commits, topic_settings.layers, self.fail)
        partitions.damage.on_damaged = damaged.found
        await self._open_partitions(feed, logs, partitions)
        self._run(damaged)
        housekeeping = self._run(Housekeeping(settings, self._clock, logs, partitions, self._metrics, topic_settings))
        access = self._make_access(feed, changes)
        self._start_replication(me, commits, feed, logs, partitions, topic_settings, access.connect_to_broker)
        groups = self._start_groups(feed, topic_admin, partitions, topic_settings)
        shared = CoordinatorParts(partitions, groups, self._clock, self._metrics, self.fail)
        transactions = self._run(make_transactions(settings, changes, topic_admin, access.connect_to_broker, shared))
        queues = self._run(make_queues(changes, topic_settings, shared, transactions.peers, self._ports.randomness))
        departures, registry = Departures(self._clock), build_registry(SERVED)
        for follow in (transactions.follow, queues.follow, departures.follow):
            feed.add_listener(follow)
        self.services = services = BrokerServices(
            settings=settings,
            me=me,
            clock=self._clock,
            cluster_id=image.cluster_id,
            image=image,
            metadata=changes,
            cluster=self._make_cluster_view(image, partitions),
            departures=departures,
            topic_admin=topic_admin,
            config_admin=ConfigAdmin(changes, topic_settings.layers),
            partition_admin=PartitionAdmin(changes, self._clock, topic_settings.layers, self._metrics),
            partitions=partitions,
            topic_settings=topic_settings,
            access=access,
            groups=groups,
            transactions=transactions,
            queues=queues,
            share=self._run(make_share(image, queues, transactions.peers, me.broker, self._on_share_member_left)),
            logs=logs,
            metrics=self._metrics,
            api_versions=advertised_versions(registry, settings),
            checkpoint=housekeeping.checkpoint,
            fail=self.fail,
        )
        self._start_group_lag(services)
        await self._serve(services, membership, registry)

    def _hold_addresses(self) -> None:
        """Take the addresses and never listen on these sockets: they hold them also while no clients are let in."""
        held = []
        for options, place in bind_all(self.listeners.all, self._ports.bind):
            self._stack.callback(place.close)
            held.append(replace(options, address=Address(options.address.host, place.getsockname()[1])))
        self.listeners = replace(self.listeners, all=tuple(held))

    def _make_access(self, feed: MetadataFeed, changes: MetadataChanges) -> Access:
        access = make_access(self.settings, self.listeners, changes, self._clock, self._ports.randomness)
        feed.add_listener(access.follow)
        if access.tls is not None:
            self._run(access.tls)
            left = access.tls.seconds_left
            self._metrics.watch("martlet_tls_certificate_seconds", "Until the TLS certificate expires.", left)
        return access

    def _run(self, part: P) -> P:
        part.start()
        self._stack.push_async_callback(part.aclose)
        return part

    def _make_cluster_view(self, image: MetadataImage, partitions: PartitionTable) -> ClusterView:
        settings = self.settings
        return ClusterView(
            image,
            BrokerId(settings.broker_id),
            may_act=partitions.may_act,
            rack=settings.rack or None,
        )

    async def _start_operations(self) -> None:
        address = self.operations_address
        names = {int(key): api_name(key) for key in ApiKey}
        info = {"version": __version__, "python": platform.python_version(), "record_codec": codec_name()}
        registry = MetricsRegistry(self._metrics, api_names=names, info=info)
        server = OperationsServer(address.host, address.port, registry, self.readiness)
        await server.start()
        self._stack.push_async_callback(server.aclose)
        self.operations_address = Address(address.host, server.port)

    async def _follow_store(self) -> tuple[MetadataFeed, MetaStore]:
        store = await until_reached(partial(self._ports.open_store, self.settings, self._clock), self._clock)
        self._stack.push_async_callback(store.close)
        feed = MetadataFeed(store, MetadataImage(), on_failure=self.fail)
        await until_reached(feed.start, self._clock)
        self._stack.push_async_callback(feed.aclose)
        return feed, store

    def _connect_partitions(self, partitions: PartitionTable, membership: Membership, space: DiskSpace) -> None:
        partitions.wait_with(self._ports.make_workers)
        partitions.space = space
        partitions.may_act = membership.keeper.may_act
        partitions.opening.on_given_up = membership.log_is_given_up

    async def _make_topic_admin(
        self, changes: MetadataChanges, me: Member, topic_settings: TopicSettings
    ) -> TopicAdmin:
        settings = self.settings
        defaults = TopicDefaults(settings.default_partitions, settings.default_replication_factor)
        ids = IdSource(self._ports.randomness)
        admin = TopicAdmin(changes, me, ids, self._clock, defaults, topic_settings.layers)
        await until_in_reach("remove unfinished topics", admin.remove_abandoned)
        return admin

    async def _make_membership(
        self, commits: MetadataCommits, feed: MetadataFeed, changes: MetadataChanges, space: DiskSpace
    ) -> Membership:
        membership = Membership(commits, changes, self._ports, self.settings, self._log_path, space, self.fail)
        self._stack.push_async_callback(membership.aclose)
        feed.add_listener(membership.follow)
        await membership.check()
        self._membership = membership
        return membership

    async def _join_cluster(self, membership: Membership, logs: LogDirectory) -> Member:
        settings = self.settings
        registration = Registration(
            id=BrokerId(settings.broker_id),
            endpoints=registered_endpoints(
                self.listeners, is_embedded=not settings.metadata, host_name=self._ports.host_name
            ),
            broker_listener=self.listeners.for_brokers,
            rack=settings.rack or None,
        )
        found = LogsFound(
            clean=logs.started_clean,
            whole=logs.started_whole,
            kept=logs.started_kept,
            empty=logs.started_empty,
            unread=logs.started_unread,
        )
        me = await membership.join(registration, found)
        logs.loss_is_known()
        await membership.start()
        return me

    async def _open_partitions(self, feed: MetadataFeed, logs: LogDirectory, partitions: PartitionTable) -> None:
        self._stack.push_async_callback(self._close_logs, logs, partitions)
        partitions.open_existing()
        # At once: no step of the image may fall between.
        feed.add_listener(partial(self._follow_metadata, partitions, feed.image))
        # What survived a crash in the page cache is made durable before any client can read it.
        await partitions.flusher.flush_all(partitions.open_partitions())

    def _follow_metadata(self, partitions: PartitionTable, image: MetadataImage, delta: ImageDelta) -> None:
        # A process whose broker was removed is at its end, and what else is gone may be gone by the same mistake.
        if self._failure is None:
            follow_metadata(partitions, image, delta)

    def _start_replication(
        self,
        me: Member,
        commits: MetadataCommits,
        feed: MetadataFeed,
        logs: LogDirectory,
        partitions: PartitionTable,
        topic_settings: TopicSettings,
        connect: Connect,
    ) -> None:
        """What a broker does for the cluster: copies, keeps in-sync sets, is the controller if no other is."""
        settings, keeper, layers = self.settings, self._keeper(), topic_settings.layers
        in_sync = InSyncKeeper(
            partitions, commits, keeper, self._clock, layers, settings.replica_lag_time_max_ms, self.fail
        )
        partitions.on_may_join = in_sync.may_join
        feed.add_listener(in_sync.follow)
        options = ControllerOptions(
            lease_ms=settings.lease_ms,
            layers=layers,
            imbalance_percent=settings.leader_imbalance_percent,
            balance_interval_ms=settings.leader_balance_interval_ms,
        )
        controller = Controller(me, commits, keeper, self._clock, options, self._metrics, self.fail)
        feed.add_listener(controller.follow)
        fetching = self._make_replica_fetching(me, feed.image, partitions, connect)
        partitions.on_roles_changed = fetching.roles_changed
        feed.add_listener(fetching.follow_brokers)
        feed.add_listener(fetching.follow_settings)
        log_ends = LogEndReports(me, commits, logs, self.fail)
        feed.add_listener(log_ends.follow)
        for part in (controller, in_sync, fetching, log_ends):
            self._run(part)
        watch = self._metrics.watch
        watch("martlet_controller", "1 on the broker that is the controller.", lambda: int(controller.has_role))
        watch("martlet_fenced", "1 while this broker has lost touch with its cluster.", lambda: int(not self.may_act()))

    def _keeper(self) -> LeaseKeeper:
        invariant(self._membership is not None, "a process joins its cluster first")
        return cast(Membership, self._membership).keeper

    def _make_replica_fetching(
        self, me: Member, image: MetadataImage, partitions: PartitionTable, connect: Connect
    ) -> ReplicaFetching:
        settings = self.settings
        options = ReplicaFetchOptions(
            wait_ms=settings.replica_fetch_wait_ms,
            bytes_max=settings.replica_fetch_bytes_max,
            throttle_bytes=settings.replica_throttle_bytes,
        )
        ports = ReplicaPorts(
            clock=self._clock,
            randomness=self._ports.randomness,
            connect=connect,
            has_space=lambda: not partitions.space.is_full,
        )
        identity = ReplicaIdentity(me, image.replica_secret)
        return ReplicaFetching(partitions, image, identity, options, ports, self._metrics)

    async def _close_logs(self, logs: LogDirectory, partitions: PartitionTable) -> None:
        await partitions.flusher.flush_all(partitions.open_partitions())
        await partitions.flusher.aclose()
        partitions.readers.close()
        for partition in partitions.open_partitions():
            if partition.features is not None:
                partition.features.close()
        try:
            logs.close(clean=self._failure is None)
        except DiskFull as error:
            logger.warning("no space for a clean stop (%s); the next start checks the logs, as after a crash", error)

    def _start_groups(
        self, feed: MetadataFeed, admin: TopicAdmin, partitions: PartitionTable, topic_settings: TopicSettings
    ) -> GroupCoordinator:
        settings = self.settings
        kind = group_kind(
            group_options(settings, consumer_times(feed.image, topic_settings), share_times(topic_settings)),
            ImageTopics(feed.image),
            IdSource(self._ports.randomness),
            self._metrics,
            SnapshotRule(settings.coordinator_snapshot_min_bytes),
            self._on_share_member_left,
        )
        topic = offsets_topic(settings, feed.image, admin)
        groups = CoordinatorHost(kind, topic, partitions, self._clock, self._metrics, self.fail)
        self._stack.push_async_callback(groups.aclose)
        groups.start()
        feed.add_listener(groups.follow)
        watch_groups(groups, self._metrics)
        return groups

    def _start_group_lag(self, services: BrokerServices) -> None:
        settings = self.settings
        lag = GroupLag(
            services.groups.machines,
            services.partitions.hosted,
            self._clock,
            interval_ms=settings.group_lag_interval_ms,
            groups_max=settings.metrics_groups_max,
        )
        lag.start(self._metrics)
        self._stack.push_async_callback(lag.aclose)

    async def _serve(self, services: BrokerServices, membership: Membership, registry: Mapping[int, Api]) -> None:
        dispatcher = Dispatcher(services, registry)
        self._stack.push_async_callback(dispatcher.aclose)
        probe = LoopLagProbe(self._metrics.loop_lag_seconds)
        probe.start()
        self._stack.callback(probe.stop)
        config = services.topic_settings.broker_config
        tls = services.access.tls
        context = tls.server_context if tls is not None else None
        server = KafkaServer(self.settings, dispatcher, self._clock, config, self._connections_possible, context)
        services.access.end_sessions = server.end_sessions
        bind = partial(bind_all, self.listeners.all, self._ports.bind)
        door = Door(server, bind, membership.has_lost_cluster, self.fail)
        await door.start()
        self._watch_gauges(services, server)
        warm_up = asyncio.create_task(prepare_codecs(registry), name="martlet-warm-up")
        self._stack.callback(warm_up.cancel)
        self._stack.push_async_callback(server.aclose, self.settings.shutdown_timeout_ms)
        self._stack.push_async_callback(door.aclose)
        # Before that: a member that waits for its group could wait longer than a stop may take.
        self._stack.callback(services.groups.stop_parking)
        self._stack.callback(services.queues.stop_parking)

    def _watch_gauges(self, services: BrokerServices, server: KafkaServer) -> None:
        watch = self._metrics.watch
        path = services.logs.path
        watch_replicas(services.partitions, services.logs, self._metrics)
        watch("martlet_partitions", "Partitions with a log on this broker.", lambda: len(services.logs))
        watch("martlet_disk_free_bytes", "Free bytes where the logs are.", lambda: self._disk.free_bytes(path))
        watch(
            "martlet_log_bytes", "Bytes of all logs.", lambda: sum(log.segments.size_bytes() for log in services.logs)
        )
        watch("martlet_in_flight_bytes", "Bytes of half-received large requests.", lambda: server.in_flight_bytes)
        space = services.partitions.space
        watch(
            "martlet_publishes_refused",
            "1 while publishes are refused because the disk is full.",
            lambda: int(space.is_full),
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
        """A timer or callback of ours raised: nothing else would notice."""
        self._metrics.count_errors(NO_API, (ErrorCode.UNKNOWN_SERVER_ERROR,))
        error = context.get("exception")
        logger.error("%s", context.get("message"), exc_info=error)
        if isinstance(error, InvariantViolation):
            self.fail(error)

    async def wait_failed(self) -> BaseException:
        """Return the reason once the broker has failed; for the program that runs the broker."""
        await self._failed.wait()
        invariant(self._failure is not None, "a failed broker has a reason")
        return cast(BaseException, self._failure)


async def prepare_codecs(registry: Mapping[int, Api]) -> None:
    """Compile the codecs of the newest versions one by one, so that first requests find them ready."""
    for api in registry.values():
        if isinstance(api, MessageApi):
            prepare(api.request, api.versions.last)
            await asyncio.sleep(_WARM_UP_PAUSE_SECONDS)
    prepare(fetch.FetchRequest, fetch.VERSIONS[-1])


def advertised_versions(registry: Mapping[int, Api], settings: BrokerSettings) -> dict[ApiKey, Versions]:
    """What clients learn of; the two-phase form only where it is enabled."""
    versions = {api.key: api.advertised for api in registry.values()}
    if settings.transaction_two_phase_commit:
        versions[ApiKey.INIT_PRODUCER_ID] = registry[ApiKey.INIT_PRODUCER_ID].versions
    return versions


def follow_metadata(partitions: PartitionTable, image: MetadataImage, delta: ImageDelta) -> None:
    """Bring the open partitions in step with a change of the metadata."""
    for topic in delta.topics_deleted:
        partitions.topic_deleted(topic)
    partitions.follow_delta(delta)
    for _, topic in delta.topics_changed:
        partitions.topic_changed(topic)
    if delta.broker_configs:
        for topic in image.topics():
            partitions.topic_changed(topic)


def latest_epoch(image: MetadataImage, partition: TopicPartition, topic_id: TopicId | None) -> int:
    """The greatest leader epoch that can stand in the log of this partition, if it is the log of that topic."""
    topic, record = image.topic(partition.topic), image.partition(*partition)
    is_known = topic is not None and record is not None and topic.id == topic_id
    return record.leader_epoch if is_known and record is not None else EPOCH_MAX


def hold_directory(ports: BrokerPorts, stack: contextlib.AsyncExitStack, path: str) -> str:
    """Make the directory, if it is not there, and keep other processes out of it; returns its path."""
    make_durable_directory(ports.disk, path)
    stack.enter_context(ports.hold_directory(path))
    return path


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


def connections_possible(file_limit: int) -> int:
    """How many connections leave a part of the open files for segments."""
    return max(1, file_limit - max(file_limit // 4, _FILES_RESERVED))


def within_file_limit(settings: BrokerSettings, possible: int) -> BrokerSettings:
    """Serve no more connections than can be, whatever the number asked for."""
    if settings.connections_max <= possible:
        return settings
    logger.info("only %d connections can be served: the system's limit of open files allows no more", possible)
    return replace(settings, connections_max=possible)
