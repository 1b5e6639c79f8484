"""What a gate is, and the three shapes that most of them have: open, the whole request, one by one.

Rules: a gate changes neither the request nor the response it is given, because a handler may answer several requests
with one message; it makes others. Authorisation comes before existence: what a client may not describe is refused
alike whether it is there or not.

Proved by: tests/unit/security/test_gates.py
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, TypeAlias

from martlet.base.errors import ErrorCode
from martlet.security.authorizer import Viewer
from martlet.security.rules import CLUSTER_NAME, Operation, ResourceKind

TOPIC: Final = ResourceKind.TOPIC
GROUP: Final = ResourceKind.GROUP
TRANSACTIONAL_ID: Final = ResourceKind.TRANSACTIONAL_ID

CLUSTER_REFUSED: Final = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
GROUP_REFUSED: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED
ID_REFUSED: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
TOPIC_REFUSED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
REFUSALS: Final = {
    ResourceKind.TOPIC: TOPIC_REFUSED,
    ResourceKind.GROUP: GROUP_REFUSED,
    ResourceKind.CLUSTER: CLUSTER_REFUSED,
    ResourceKind.TRANSACTIONAL_ID: ID_REFUSED,
}


class Denial(NamedTuple):
    """What a client asked for and may not do."""

    operation: Operation
    kind: ResourceKind
    name: str


@dataclass(frozen=True, slots=True)
class TopicNames:
    """What gates know of topics."""

    name_of: Callable[[bytes], str | None]
    """The name of the topic that has this id, if there is one."""
    exists: Callable[[str], bool]
    all: Callable[[], Iterable[str]]


class Asker:
    """One request's client; `denials` is for the audit."""

    __slots__ = ("denials", "topics", "version", "viewer")

    def __init__(self, viewer: Viewer, version: int, topics: TopicNames) -> None:
        self.viewer = viewer
        self.version = version
        self.topics = topics
        self.denials: list[Denial] = []

    def may(self, operation: Operation, kind: ResourceKind, name: str) -> bool:
        """Whether the client may do what it asked for."""
        if self.viewer.may(operation, kind, name):
            return True
        self.denials.append(Denial(operation, kind, name))
        return False

    def may_on_cluster(self, operation: Operation) -> bool:
        """Whether the client may do what it asked for to the cluster as a whole."""
        return self.may(operation, ResourceKind.CLUSTER, CLUSTER_NAME)

    def sees(self, operation: Operation, kind: ResourceKind, name: str) -> bool:
        """The same for what the client did not ask for by name: leaving it out is no denial."""
        return self.viewer.may(operation, kind, name)

    def sees_topic(self, topic: str) -> bool:
        """Whether a list may show the topic."""
        return self.viewer.may(Operation.DESCRIBE, TOPIC, topic)


Finish: TypeAlias = Callable[[Any], Any]


class Admission(NamedTuple):
    """How a request goes on: to the handler, whose answer `finish` completes, or no further than `answer`."""

    request: Any = None
    finish: Finish | None = None
    answer: Any = None


Gate: TypeAlias = Callable[[Any, Asker], Admission]


def open_to_all(request: Any, asker: Asker) -> Admission:
    """No right is needed."""
    return Admission(request)


def checked_by_handler(request: Any, asker: Asker) -> Admission:
    """Requests of the hot path, which never come here as messages: their handlers ask the viewer for each topic."""
    return Admission(request)


def whole(may: Callable[[Any, Asker], bool], refusal: Callable[[Any, int], Any], finish: Finish | None = None) -> Gate:
    """A gate that lets the whole request pass, or refuses it with what `refusal` makes of request and version."""

    def gate(request: Any, asker: Asker) -> Admission:
        if may(request, asker):
            return Admission(request, finish)
        return Admission(answer=refusal(request, asker.version))

    return gate


def on_cluster(operation: Operation, refusal: Callable[[Any, int], Any]) -> Gate:
    """A request that needs an operation on the cluster as a whole."""
    return whole(lambda request, asker: asker.may_on_cluster(operation), refusal)


def on_group(refusal: Callable[[Any, int], Any], operation: Operation = Operation.READ) -> Gate:
    """A request that names one group, in `group_id`."""
    return whole(lambda request, asker: asker.may(operation, GROUP, request.group_id), refusal)


def error(response: type[Any]) -> Callable[[Any, int], Any]:
    """An answer that says only that the cluster is not the client's to do this with."""
    return lambda request, version: response(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def group_error(response: type[Any]) -> Callable[[Any, int], Any]:
    """An answer that says only that the group is not the client's to do this with."""
    return lambda request, version: response(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)


def one_by_one(
    items: str,
    results: str,
    response: type[Any],
    may: Callable[[Any, Asker], bool],
    refused: Callable[[Any], Any],
) -> Gate:
    """A gate for a list in the request: what is refused is left out, and `refused` makes its result."""

    def gate(request: Any, asker: Asker) -> Admission:
        asked: Sequence[Any] = getattr(request, items)
        allowed, denied = split(asked, lambda item: may(item, asker))
        if not denied:
            return Admission(request)
        refusals = [refused(item) for item in denied]
        if not allowed:
            return Admission(answer=response(**{results: refusals}))

        def finish(answer: Any) -> Any:
            return replace(answer, **{results: [*getattr(answer, results), *refusals]})

        return Admission(replace(request, **{items: allowed}), finish)

    return gate


def split(items: Sequence[Any], may: Callable[[Any], bool]) -> tuple[list[Any], list[Any]]:
    """What is allowed, and what is not."""
    allowed: list[Any] = []
    denied: list[Any] = []
    for item in items:
        (allowed if may(item) else denied).append(item)
    return allowed, denied
