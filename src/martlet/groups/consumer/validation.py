"""Checks of a ConsumerGroupHeartbeat by itself, in the order in which Kafka makes them.

Only the request itself is checked here; whether it fits the group is for `heartbeat.py` and `departure.py`. Sizes are
bounded here, so that every record made of a request that passed fits into a batch.
"""

from typing import Final

from martlet.base.errors import ApiError, ErrorCode
from martlet.groups.consumer.consumer_group import AWAY_EPOCH, JOINING_EPOCH
from martlet.groups.consumer.topic_regex import check_regex
from martlet.groups.ports import GroupsOptions
from martlet.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

MEMBER_ID_LENGTH_MAX: Final = 512
"""Characters; ids that the broker makes for members of the classic protocol have up to 300."""


def check_heartbeat(request: ConsumerGroupHeartbeatRequest, version: int, options: GroupsOptions) -> None:
    """Refuse a request that no member may send."""
    if not request.member_id and (version >= 1 or request.member_epoch != JOINING_EPOCH):
        raise _invalid("MemberId can't be empty.")
    if not request.group_id:
        raise _invalid("GroupId can't be empty.")
    if request.instance_id == "":
        raise _invalid("InstanceId can't be empty.")
    if request.rack_id == "":
        raise _invalid("RackId can't be empty.")
    if request.member_epoch == JOINING_EPOCH:
        _check_join(request)
    elif request.member_epoch == AWAY_EPOCH:
        if request.instance_id is None:
            raise _invalid("InstanceId can't be null when a static member leaves for a while (epoch -2).")
    elif request.member_epoch < AWAY_EPOCH:
        raise _invalid(f"MemberEpoch {request.member_epoch} is invalid.")
    if request.server_assignor is not None and request.server_assignor not in options.consumer_assignors:
        raise ApiError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor[:200]!r} is not supported. "
            f"Supported assignors: {', '.join(options.consumer_assignors)}.",
        )
    _check_sizes(request, options)
    if request.subscribed_topic_regex:
        check_regex(request.subscribed_topic_regex)


def check_member_id(member_id: str) -> None:
    """A target names every member of the group in one batch, so ids cannot be of any length. Clients' have about 40."""
    if len(member_id) > MEMBER_ID_LENGTH_MAX:
        raise _invalid(f"MemberId has {len(member_id)} characters; at most {MEMBER_ID_LENGTH_MAX} are allowed.")


def _check_join(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == -1:
        raise _invalid("RebalanceTimeoutMs must be provided in the first request.")
    if request.topic_partitions is None or request.topic_partitions:
        raise _invalid("TopicPartitions must be empty when (re-)joining.")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise _invalid("Either SubscribedTopicNames or SubscribedTopicRegex must be given when (re-)joining.")


def _check_sizes(request: ConsumerGroupHeartbeatRequest, options: GroupsOptions) -> None:
    if len(request.group_id.encode(errors="surrogatepass")) > options.group_id_bytes_max:
        raise ApiError(
            ErrorCode.INVALID_GROUP_ID, f"GroupId has more than {options.group_id_bytes_max} bytes, which is the limit."
        )
    check_member_id(request.member_id)
    names = request.subscribed_topic_names or ()
    if len(names) > options.topics_per_member_max:
        raise _invalid(
            f"SubscribedTopicNames has {len(names)} topics; a member may have {options.topics_per_member_max}."
        )
    total = len(request.member_id) + len(request.instance_id or "") + len(request.rack_id or "")
    total += sum(map(len, names))
    if total > options.member_metadata_bytes_max:
        raise _invalid(
            f"The member's ids and topic names have {total} characters, more than {options.member_metadata_bytes_max}."
        )


def _invalid(detail: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, detail)
