"""Changes the settings of topics, brokers and groups.

Rules: what is allowed, and what becomes of a change, is decided by `martlet.configs`; here it is stored.

Proved by: tests/unit/broker/administration/test_topic_admin.py, tests/broker/test_admin_configs.py
"""

import logging
from collections.abc import Callable, Mapping, Sequence

from martlet.base.ids import BrokerId
from martlet.broker.membership.metadata_changes import MetadataChanges
from martlet.cluster.broker_decisions import plan_broker_configs, plan_group_configs
from martlet.cluster.records import TopicRecord
from martlet.cluster.store import CommitPlan
from martlet.cluster.topic_decisions import known_topic, plan_topic_configs
from martlet.configs.changes import (
    ConfigChange,
    alter_broker_configs,
    alter_group_configs,
    alter_topic_configs,
    replace_broker_configs,
    replace_group_configs,
    replace_topic_configs,
    unknown_broker_names,
)
from martlet.configs.effective import NO_LAYERS, BrokerLayers

logger = logging.getLogger(__name__)


class ConfigAdmin:
    """Safe to call from many tasks of one event loop."""

    def __init__(self, changes: MetadataChanges, layers: Callable[[], BrokerLayers] = lambda: NO_LAYERS) -> None:
        self._changes = changes
        self._image = changes.image
        self._layers = layers

    # --- topics

    async def alter_topic_configs(
        self, name: str, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> TopicRecord:
        """Change some of a topic's settings (IncrementalAlterConfigs)."""
        return await self._set_topic_configs(
            name, lambda stored: alter_topic_configs(stored, changes, self._layers()), validate_only
        )

    async def replace_topic_configs(
        self, name: str, configs: Mapping[str, str | None], *, validate_only: bool = False
    ) -> TopicRecord:
        """Give a topic exactly these settings (AlterConfigs)."""
        return await self._set_topic_configs(
            name, lambda _: replace_topic_configs(configs, self._layers()), validate_only
        )

    # --- brokers

    async def alter_broker_configs(
        self, broker: BrokerId | None, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> None:
        """Change some run-time settings of a broker, or of all brokers when None (IncrementalAlterConfigs)."""
        await self._set_broker_configs(
            broker, lambda stored: alter_broker_configs(stored, changes, self._layers()), validate_only
        )

    async def replace_broker_configs(
        self, broker: BrokerId | None, configs: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """Give a broker, or all of them when None, exactly these run-time settings (AlterConfigs)."""
        await self._set_broker_configs(broker, lambda _: replace_broker_configs(configs), validate_only)

    # --- groups

    async def alter_group_configs(
        self, group: str, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> None:
        """Change some of a group's settings (IncrementalAlterConfigs); there need be no such group yet."""
        await self._set_group_configs(
            group, lambda stored: alter_group_configs(stored, changes, self._layers()), validate_only
        )

    async def replace_group_configs(
        self, group: str, configs: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """Give a group exactly these settings (AlterConfigs)."""
        await self._set_group_configs(group, lambda _: replace_group_configs(configs, self._layers()), validate_only)

    async def _set_topic_configs(
        self, name: str, compute: Callable[[Mapping[str, str]], Mapping[str, str]], validate_only: bool
    ) -> TopicRecord:
        def decide() -> CommitPlan | None:
            topic = known_topic(self._image, name)
            configs = compute(topic.configs)
            return None if validate_only or configs == topic.configs else plan_topic_configs(topic, configs)

        await self._changes.execute(decide)
        return known_topic(self._image, name)

    async def _set_broker_configs(
        self, broker: BrokerId | None, compute: Callable[[Mapping[str, str]], Mapping[str, str]], validate_only: bool
    ) -> None:
        def decide() -> CommitPlan | None:
            stored = self._image.broker_config_record(broker)
            configs = compute(stored.configs)
            return None if validate_only or configs == stored.configs else plan_broker_configs(stored, configs)

        before = self._image.broker_configs(broker)
        await self._changes.execute(decide)
        for name in unknown_broker_names(self._image.broker_configs(broker)):
            if name not in before:
                logger.warning("the broker setting %r is kept, but unknown here: it has no effect", name[:80])

    async def _set_group_configs(
        self, group: str, compute: Callable[[Mapping[str, str]], Mapping[str, str]], validate_only: bool
    ) -> None:
        def decide() -> CommitPlan | None:
            stored = self._image.group_config_record(group)
            configs = compute(stored.configs)
            return None if validate_only or configs == stored.configs else plan_group_configs(stored, configs)

        await self._changes.execute(decide)
