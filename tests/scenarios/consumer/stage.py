"""The stage on which stories of consumer groups and of migration are played: two protocols, topics, and the verbs.

Partitions are written and shown as `orders:0,1;clicks:0`. Members of KIP-848 choose their ids; ids that the broker
gives are shown as the name they begin with and a number, `a#1`, and named in commands in the same way.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

from sim.randomness import SimRandomness

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import TopicId
from martlet.base.randomness import IdSource
from martlet.coordinator.result import Result
from martlet.groups.classic.member import Member as ClassicMember
from martlet.groups.ports import Caller, GroupsOptions
from martlet.groups.record_codec import GroupRecordCodec
from martlet.groups.records import ClassicMemberStored, ClassicProtocolStored, MemberState
from martlet.wire.consumer_protocol import Subscription, read_assignment, write_assignment, write_subscription
from martlet.wire.messages import consumer_group_describe
from martlet.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from martlet.wire.messages.heartbeat import HeartbeatRequest
from martlet.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from martlet.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from martlet.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from tests.scenarios.runner import Command, Transcript, short
from tests.unit.groups.consumer.sim_topics import SimTopics
from tests.unit.groups.migration.two_protocols import TwoProtocols

GIVEN_ID = re.compile(r"\b([a-z]\w*)-(?:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[\w-]{22})(?![\w-])")
Words = Mapping[str, str]
UNSHOWN = {"group_id", "metadata_hash", "client_id", "client_host", "changed_at_ms", "resolved_at_ms", "at_ms"}


class Stage:
    """One story's machine and verbs."""

    def __init__(self) -> None:
        self.topics = SimTopics()
        self.options = GroupsOptions(initial_rebalance_delay_ms=0)
        self.labels: dict[str, str] = {}
        self.context = self._open()
        self.commands: dict[str, Command] = {
            "options": self.configure,
            "topic": self.topic,
            "delete_topic": self.delete_topic,
            "join": self.join,
            "beat": self.beat,
            "leave": self.leave,
            "classic_join": self.classic_join,
            "classic_sync": self.classic_sync,
            "classic_beat": self.classic_beat,
            "classic_leave": self.classic_leave,
            "commit": self.commit,
            "fetch": self.fetch,
            "describe": self.describe,
            "advance": self.advance,
            "reload": self.reload,
            "compact": self.compact,
        }

    def _open(self) -> Transcript[TwoProtocols]:
        ids = IdSource(SimRandomness("stories"))
        return Transcript(lambda: TwoProtocols(self.options, self.topics, ids), GroupRecordCodec(), self.show)

    def configure(self, words: dict[str, str]) -> list[str]:
        """options NAME=NUMBER …: start over with these limits."""
        numbers = {name: int(value) for name, value in words.items()}
        self.options = dataclasses.replace(self.options, **numbers)  # type: ignore[arg-type]
        self.context = self._open()
        return []

    def topic(self, words: dict[str, str]) -> list[str]:
        """topic name=orders partitions=4 [racks=a,b,a,b]: create it, or let it grow."""
        name, count = words["name"], int(words["partitions"])
        if self.topics.topic(name) is None:
            self.topics.create(name, count, words["racks"].split(",") if "racks" in words else ())
        else:
            self.topics.grow(name, count)
        return self._call(lambda machine, now_ms: machine.topics_changed([name], now_ms))

    def delete_topic(self, words: dict[str, str]) -> list[str]:
        """delete_topic name=orders."""
        self.topics.delete(words["name"])
        return self._call(lambda machine, now_ms: machine.topics_changed([words["name"]], now_ms))

    def join(self, words: dict[str, str]) -> list[str]:
        """join member=a [topics=orders,clicks] [regex=] [instance=] [rack=] [assignor=] [timeout=]: all in one."""
        defaults = {"epoch": "0", "own": "", "timeout": "60000"}
        if "regex" not in words:
            defaults["topics"] = "orders"
        return self.beat({**defaults, **words})

    def beat(self, words: dict[str, str]) -> list[str]:
        """beat member=a epoch=3 [own=orders:0,1] [topics=] [regex=] [timeout=] …: what is left out is unchanged."""
        topics = [name for name in words.get("topics", "").split(",") if name]
        request = ConsumerGroupHeartbeatRequest(
            group_id=words.get("group", "g"),
            member_id=self._member_id(words["member"]),
            member_epoch=int(words["epoch"]),
            instance_id=words.get("instance"),
            rack_id=words.get("rack"),
            rebalance_timeout_ms=int(words.get("timeout", "-1")),
            subscribed_topic_names=topics if "topics" in words else None,
            subscribed_topic_regex=words.get("regex"),
            server_assignor=words.get("assignor"),
            topic_partitions=self._owned(words["own"]) if "own" in words else None,
        )
        return self._call(lambda machine, now_ms: machine.consumer_group_heartbeat(request, _caller(words, 1), now_ms))

    def leave(self, words: dict[str, str]) -> list[str]:
        """leave member=a [instance=] [epoch=-2]."""
        return self.beat({"epoch": "-1", **words})

    def classic_join(self, words: dict[str, str]) -> list[str]:
        """classic_join client=c [member=c#1] [instance=] [topics=] [own=orders:0] [protocols=range] [version=]."""
        topics = tuple(name for name in words.get("topics", "orders").split(",") if name)
        owned = {name: tuple(numbers) for name, numbers in _partitions(words.get("own", "")).items()}
        metadata = write_subscription(Subscription(topics, None, owned))
        if "garbage" in words:
            metadata = b"?"
        request = JoinGroupRequest(
            group_id=words.get("group", "g"),
            session_timeout_ms=int(words.get("session", "10000")),
            rebalance_timeout_ms=int(words.get("timeout", "60000")),
            member_id=self._member_id(words.get("member", "")),
            group_instance_id=words.get("instance"),
            protocol_type=words.get("type", "consumer"),
            protocols=[JoinGroupRequestProtocol(name, metadata) for name in words.get("protocols", "range").split(",")],
        )
        return self._call(lambda machine, now_ms: machine.join_group(request, _caller(words, 3), now_ms))

    def classic_sync(self, words: dict[str, str]) -> list[str]:
        """classic_sync member=c#1 generation=1 [assign=c#1=orders:0/d#1=orders:1] [protocol=] [type=]."""
        shares = [share.partition("=") for share in words.get("assign", "").split("/") if share]
        request = SyncGroupRequest(
            group_id=words.get("group", "g"),
            generation_id=int(words["generation"]),
            member_id=self._member_id(words["member"]),
            group_instance_id=words.get("instance"),
            protocol_type=words.get("type", "consumer"),
            protocol_name=words.get("protocol", "range"),
            assignments=[
                SyncGroupRequestAssignment(self._member_id(name), write_assignment(3, _partitions(partitions)))
                for name, _, partitions in shares
            ],
        )
        return self._call(lambda machine, now_ms: machine.sync_group(request, _caller(words, 5), now_ms))

    def classic_beat(self, words: dict[str, str]) -> list[str]:
        """classic_beat member=c#1 generation=1 [instance=]."""
        member_id = self._member_id(words["member"])
        request = HeartbeatRequest(words.get("group", "g"), int(words["generation"]), member_id, words.get("instance"))
        return self._call(lambda machine, now_ms: machine.heartbeat(request, _caller(words, 4), now_ms))

    def classic_leave(self, words: dict[str, str]) -> list[str]:
        """classic_leave member=c#1 [instance=]."""
        identity = MemberIdentity(self._member_id(words["member"]), words.get("instance"))
        request = LeaveGroupRequest(words.get("group", "g"), identity.member_id, [identity])
        return self._call(lambda machine, now_ms: machine.leave_group(request, _caller(words, 5), now_ms))

    def commit(self, words: dict[str, str]) -> list[str]:
        """commit member=a epoch=3 [version=9]: may this member commit?"""
        consumer = self.context.machine.consumer
        member_id, epoch = self._member_id(words["member"]), int(words["epoch"])
        version = int(words.get("version", "9"))
        return _allowed(lambda group: consumer.check_commit(group, member_id=member_id, epoch=epoch, version=version))(
            consumer.groups["g"]
        )

    def fetch(self, words: dict[str, str]) -> list[str]:
        """fetch [member=a] [epoch=3]: may this member ask for committed offsets?"""
        consumer = self.context.machine.consumer
        member_id = words.get("member")
        epoch = int(words.get("epoch", "-1"))
        return _allowed(lambda group: consumer.check_fetch(group, member_id=member_id, epoch=epoch))(
            consumer.groups["g"]
        )

    def describe(self, words: dict[str, str]) -> list[str]:
        """describe [group=g]: the group as tools see it."""
        machine = self.context.machine
        group_id = words.get("group", "g")
        classic = machine.classic.groups.get(group_id)
        if classic is not None:
            members = [self._text(member_id) for member_id in classic.members]
            return [f"classic {classic.state.value} generation={classic.generation} members={','.join(members)}"]
        group = machine.consumer.groups.get(group_id)
        if group is None:
            return ["no such group"]
        described = machine.consumer.describe(group)
        head = f"{described.group_state} epoch={described.group_epoch} target={described.assignment_epoch}"
        return [f"{head} assignor={described.assignor_name}", *map(self._described_member, described.members)]

    def advance(self, words: dict[str, str]) -> list[str]:
        """advance ms=1000."""
        self.context.advance(int(words["ms"]))
        return self._lines()

    def reload(self, words: dict[str, str]) -> list[str]:
        """reload: the broker restarts, or another one takes over."""
        self.context.reload()
        return self._lines()

    def compact(self, words: dict[str, str]) -> list[str]:
        """compact: the log keeps the newest record of each key."""
        self.context.compact()
        return []

    def show(self, value: object) -> str:
        return self._text(self._shown(value))

    def _described_member(self, member: consumer_group_describe.Member) -> str:
        kind = "classic" if member.member_type == 0 else "consumer"
        owns, shall = _described(member.assignment), _described(member.target_assignment)
        return self._text(f"{member.member_id} {kind} epoch={member.member_epoch} owns={owns} shall={shall}")

    def _shown(self, value: object) -> str:
        match value:
            case Assignment():
                parts = [(TopicId(one.topic_id), number) for one in value.topic_partitions for number in one.partitions]
                return self._named(frozenset(parts))
            case SyncGroupResponse():
                shown = read_assignment(value.assignment)
                got = "" if shown is None or value.error_code else f" {_joined(shown.partitions)}"
                return f"SyncGroupResponse{_code(value.error_code)}{got}"
            case ClassicMemberStored():
                shown = read_assignment(value.assignment)
                return f"{value.member_id} {_joined(shown.partitions) if shown else value.assignment!r}"
            case ClassicMember():
                return f"{value.member_id} {'+'.join(name for name, _ in value.protocols)}"
            case ClassicProtocolStored():
                names = "+".join(name for name, _ in value.protocols)
                return f"({names} session={value.session_timeout_ms})"
            case MemberState():
                return value.name
            case frozenset():
                return self._named(value)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return self._shown_fields(value)
        return f"[{' '.join(map(self._shown, value))}]" if isinstance(value, list | tuple) else short(value)

    def _shown_fields(self, value: Any) -> str:
        shown = [type(value).__name__]
        for one in dataclasses.fields(value):
            default = one.default if one.default_factory is dataclasses.MISSING else one.default_factory()
            content = getattr(value, one.name)
            if one.name == "error_code":
                shown.append(_code(content).strip())
            elif one.name not in UNSHOWN and content != default:
                shown.append(f"{one.name}={self._shown(content)}")
        return " ".join(part for part in shown if part)

    def _named(self, partitions: frozenset[Any]) -> str:
        named: dict[str, list[int]] = {}
        for topic_id, number in sorted(partitions):
            named.setdefault(topic_id.decode().split("#")[0], []).append(number)
        return _joined(named)

    def _owned(self, text: str) -> list[TopicPartitions]:
        return [TopicPartitions(self.topics.id_of(name), numbers) for name, numbers in _partitions(text).items()]

    def _call(self, operation: Callable[[TwoProtocols, int], Result[Any]]) -> list[str]:
        try:
            self.context.call(operation)
        except ApiError as error:
            self.context.note(f"error {error.code.name}")
        return self._lines()

    def _lines(self) -> list[str]:
        return [self._text(line) for line in self.context.take_lines()]

    def _text(self, text: str) -> str:
        return GIVEN_ID.sub(self._label, text)

    def _label(self, found: re.Match[str]) -> str:
        whole, name = found.group(0), found.group(1)
        if whole not in self.labels.values():
            number = sum(label.startswith(f"{name}#") for label in self.labels) + 1
            self.labels[f"{name}#{number}"] = whole
        return next(label for label, given in self.labels.items() if given == whole)

    def _member_id(self, name: str) -> str:
        return self.labels.get(name, name)


def _allowed(check: Callable[[Any], None]) -> Callable[[Any], list[str]]:
    def run(group: Any) -> list[str]:
        try:
            check(group)
        except ApiError as error:
            return [f"error {error.code.name}"]
        return ["allowed"]

    return run


def _caller(words: Words, version: int) -> Caller:
    return Caller(words.get("client", "c"), "/127.0.0.1", int(words.get("version", version)))


def _partitions(text: str) -> dict[str, list[int]]:
    named: dict[str, list[int]] = {}
    for part in filter(None, text.split(";")):
        name, _, numbers = part.partition(":")
        named[name] = [int(number) for number in numbers.split(",")]
    return named


def _joined(named: Mapping[str, Any]) -> str:
    return ";".join(f"{name}:{','.join(map(str, numbers))}" for name, numbers in named.items()) or "nothing"


def _described(assignment: consumer_group_describe.Assignment) -> str:
    return _joined({one.topic_name: one.partitions for one in assignment.topic_partitions})


def _code(code: int) -> str:
    return f" {ErrorCode(code).name}" if code else ""
