"""What a ShareGroupHeartbeat must look like, whatever the group; sizes are bounded, so that its records fit a batch."""

from typing import Final

from martlet.base.errors import ApiError, ErrorCode
from martlet.groups.share.options import ShareOptions
from martlet.groups.share.share_group import JOINING_EPOCH, LEAVING_EPOCH
from martlet.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

MEMBER_ID_LENGTH_MAX: Final = 36
"""Clients name themselves by a UUID in its usual text form."""


def check_heartbeat(request: ShareGroupHeartbeatRequest, options: ShareOptions) -> None:
    """Refuse a request that no member may send."""
    if not request.group_id:
        raise _invalid("GroupId can't be empty.")
    if not 1 <= len(request.member_id) <= MEMBER_ID_LENGTH_MAX:
        raise _invalid(f"MemberId has {len(request.member_id)} characters; it has 1 to {MEMBER_ID_LENGTH_MAX}.")
    if request.member_epoch < LEAVING_EPOCH:
        raise _invalid(f"MemberEpoch {request.member_epoch} is invalid.")
    if request.rack_id == "":
        raise _invalid("RackId can't be empty.")
    if request.member_epoch == JOINING_EPOCH and not request.subscribed_topic_names:
        raise _invalid("SubscribedTopicNames must be given when (re-)joining.")
    if len(request.group_id.encode(errors="surrogatepass")) > options.group_id_bytes_max:
        reason = f"GroupId has more than {options.group_id_bytes_max} bytes, which is the limit."
        raise ApiError(ErrorCode.INVALID_GROUP_ID, reason)
    names = request.subscribed_topic_names or ()
    if len(names) > options.topics_per_member_max:
        most = options.topics_per_member_max
        raise _invalid(f"SubscribedTopicNames has {len(names)} topics; a member may have {most}.")
    total = len(request.rack_id or "") + sum(map(len, names))
    if total > options.member_metadata_bytes_max:
        most = options.member_metadata_bytes_max
        raise _invalid(f"The member's ids and topic names have {total} characters, more than {most}.")


def _invalid(detail: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, detail)
