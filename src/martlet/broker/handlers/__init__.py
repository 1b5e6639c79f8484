"""One file per API: its versions, its behaviour, its deliberate deviations. The file list is the API surface.

A handler decides nothing about framing, order or limits; it turns one request into one response with the parts in
`BrokerServices`. `SERVED` below is the only list of them; ApiVersions is computed from it.
"""

from typing import Final

from martlet.broker.handlers import (
    alter_configs,
    api_versions,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    fetch,
    find_coordinator,
    incremental_alter_configs,
    init_producer_id,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
)

SERVED: Final = (
    produce,
    fetch,
    list_offsets,
    metadata,
    find_coordinator,
    api_versions,
    create_topics,
    delete_topics,
    delete_records,
    init_producer_id,
    offset_for_leader_epoch,
    describe_configs,
    alter_configs,
    describe_log_dirs,
    create_partitions,
    incremental_alter_configs,
    describe_cluster,
    describe_producers,
    describe_topic_partitions,
)
