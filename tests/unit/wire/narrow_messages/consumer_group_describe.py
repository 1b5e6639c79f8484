"""ConsumerGroupDescribe, for a struct that is neither an array nor nullable and that our class does not have."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Member:
    """Keeps a name; the schema's Member also nests two Assignments."""

    member_id: str = ""


@dataclass(slots=True)
class DescribedGroup:
    """Keeps the members."""

    members: list[Member] = field(default_factory=list)


@dataclass(slots=True)
class ConsumerGroupDescribeResponse:
    """The response."""

    groups: list[DescribedGroup] = field(default_factory=list)
