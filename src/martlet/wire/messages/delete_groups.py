"""DeleteGroups (key 42): forget groups without members, with all they have committed.

Versions 0–2. v1 only changes when throttling takes effect; v2 is the first flexible one.
"""

from dataclasses import field

from martlet.wire.message import message


@message
class DeleteGroupsRequest:
    """The groups to forget."""

    groups_names: list[str] = field(default_factory=list)


@message
class DeletableGroupResult:
    """Whether one group is gone."""

    group_id: str = ""
    error_code: int = 0


@message
class DeleteGroupsResponse:
    """The answers, one per group."""

    throttle_time_ms: int = 0
    results: list[DeletableGroupResult] = field(default_factory=list)
