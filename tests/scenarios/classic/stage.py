"""The stage on which classic scenarios are played: one machine, the verbs of the stories, and how outcomes are shown.

Member ids are shown as the name they begin with and a number: `a#1` is the first id that client `a` was given, `a#2`
its second. The same form names members in commands.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from sim.randomness import SimRandomness

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.randomness import IdSource
from martlet.coordinator.result import Result
from martlet.groups.classic import answers
from martlet.groups.classic.classic_protocol import ClassicProtocol
from martlet.groups.classic.member import Member
from martlet.groups.ports import Caller, GroupsOptions
from martlet.groups.record_codec import GroupRecordCodec
from martlet.groups.records import ClassicGroupStored
from martlet.wire.consumer_protocol import Subscription, write_subscription
from martlet.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from martlet.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from martlet.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from martlet.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from tests.scenarios.runner import Command, Transcript, short

MEMBER_ID = re.compile(r"([\w.]+)-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
Words = Mapping[str, str]


class Stage:
    """One story's machine and verbs."""

    def __init__(self) -> None:
        self.options = GroupsOptions()
        self.labels: dict[str, str] = {}
        self.context = self._open()
        self.commands: dict[str, Command] = {
            "options": self.configure,
            "limits": self.limits,
            "join": self.join,
            "sync": self.sync,
            "heartbeat": self.heartbeat,
            "leave": self.leave,
            "commit": self.commit,
            "describe": self.describe,
            "advance": self.advance,
            "reload": self.reload,
        }

    def _open(self) -> Transcript[ClassicProtocol]:
        ids = IdSource(SimRandomness("classic"))
        return Transcript(lambda: ClassicProtocol(self.options, ids), GroupRecordCodec(), self.show)

    def configure(self, words: dict[str, str]) -> list[str]:
        """options NAME=NUMBER …: start over with these limits."""
        self.options = replace(GroupsOptions(), **_numbers(words))
        self.context = self._open()
        return []

    def limits(self, words: dict[str, str]) -> list[str]:
        """limits NAME=NUMBER …: the broker restarts with other limits."""
        self.options = replace(self.options, **_numbers(words))
        return self.reload(words)

    def join(self, words: dict[str, str]) -> list[str]:
        """join client=a [member=a#1] [instance=i] [protocols=range:t+u,sticky:t] [session=] [rebalance=] [version=]."""
        request = JoinGroupRequest(
            group_id=words.get("group", "g"),
            session_timeout_ms=int(words.get("session", "10000")),
            rebalance_timeout_ms=int(words.get("rebalance", "60000")),
            member_id=self._member_id(words.get("member", "")),
            group_instance_id=words.get("instance"),
            protocol_type=words.get("type", "consumer"),
            protocols=[_protocol(text) for text in words.get("protocols", "range:t").split(",") if text],
        )
        return self._call(lambda machine, now_ms: machine.join_group(request, _caller(words, 9), now_ms))

    def sync(self, words: dict[str, str]) -> list[str]:
        """sync member=a#1 generation=1 [assign=a#1:p0,b#1:p1] [instance=] [type=] [protocol=] [version=]."""
        version = int(words.get("version", "5"))
        request = SyncGroupRequest(
            group_id=words.get("group", "g"),
            generation_id=int(words["generation"]),
            member_id=self._member_id(words["member"]),
            group_instance_id=words.get("instance"),
            protocol_type=words.get("type", "consumer" if version >= 5 else None),
            protocol_name=words.get("protocol", "range" if version >= 5 else None),
            assignments=[self._assignment(text) for text in words.get("assign", "").split(",") if text],
        )
        return self._call(lambda machine, now_ms: machine.sync_group(request, _caller(words, 5), now_ms))

    def heartbeat(self, words: dict[str, str]) -> list[str]:
        """heartbeat member=a#1 generation=1 [instance=]."""
        member_id = self._member_id(words["member"])
        request = HeartbeatRequest(words.get("group", "g"), int(words["generation"]), member_id, words.get("instance"))
        return self._call(lambda machine, now_ms: machine.heartbeat(request, _caller(words, 4), now_ms))

    def leave(self, words: dict[str, str]) -> list[str]:
        """leave members=a#1,b#1/instance,/instance [version=]."""
        names = [text.partition("/") for text in words["members"].split(",")]
        members = [MemberIdentity(self._member_id(name), instance or None) for name, _, instance in names]
        request = LeaveGroupRequest(words.get("group", "g"), members[0].member_id, members)
        return self._call(lambda machine, now_ms: machine.leave_group(request, _caller(words, 5), now_ms))

    def commit(self, words: dict[str, str]) -> list[str]:
        """commit member=a#1 generation=1: may this member commit?"""
        machine = self.context.machine
        group = machine.groups[words.get("group", "g")]
        member_id = self._member_id(words.get("member", ""))
        generation, instance_id = int(words.get("generation", "-1")), words.get("instance")
        try:
            machine.check_commit(group, member_id=member_id, generation=generation, instance_id=instance_id)
        except ApiError as error:
            return [f"error {error.code.name}"]
        timers = [
            f"timer {' '.join(timer.key)} in {timer.delay_ms}" for timer in machine.commit_timers(group, member_id)
        ]
        return ["allowed", *map(self._text, timers)]

    def describe(self, words: dict[str, str]) -> list[str]:
        """describe [group=g]: the group as tools see it."""
        group = self.context.machine.groups.get(words.get("group", "g"))
        if group is None:
            return ["no such group"]
        described = answers.described(group)
        members = [
            f"{self._text(member.member_id)} client={member.client_id}{member.client_host}"
            f" metadata={len(member.member_metadata)} bytes assignment={member.member_assignment.decode() or 'nothing'}"
            for member in described.members
        ]
        head = f"{described.group_state} generation={group.generation} protocol={described.protocol_data}"
        return [f"{head} leader={self._text(str(group.leader))}", *members]

    def advance(self, words: dict[str, str]) -> list[str]:
        """advance ms=1000."""
        self.context.advance(int(words["ms"]))
        return self._lines()

    def reload(self, words: dict[str, str]) -> list[str]:
        """reload: the broker restarts, or another one takes over; parked requests are lost with their connections."""
        self.context.reload()
        return self._lines()

    def show(self, value: object) -> str:
        return self._text(_shown(value))

    def _call(self, operation: Callable[[ClassicProtocol, int], Result[Any]]) -> list[str]:
        try:
            self.context.call(operation)
        except ApiError as error:
            self.context.note(f"error {error.code.name}")
        return self._lines()

    def _lines(self) -> list[str]:
        return [self._text(line) for line in self.context.take_lines()]

    def _text(self, text: str) -> str:
        return MEMBER_ID.sub(lambda found: self._label(found[0], found[1]), text)

    def _label(self, member_id: str, name: str) -> str:
        if member_id not in self.labels:
            known = sum(label.startswith(f"{name}#") for label in self.labels.values())
            self.labels[member_id] = f"{name}#{known + 1}"
        return self.labels[member_id]

    def _member_id(self, label: str) -> str:
        return next((member_id for member_id, known in self.labels.items() if known == label), label)

    def _assignment(self, text: str) -> SyncGroupRequestAssignment:
        label, _, assignment = text.partition(":")
        return SyncGroupRequestAssignment(self._member_id(label), assignment.encode())


def _numbers(words: Words) -> dict[str, Any]:
    return {name: int(value) for name, value in words.items()}


def _caller(words: Words, version: int) -> Caller:
    return Caller(words.get("client", "client"), "/10.0.0.1", int(words.get("version", version)))


def _protocol(text: str) -> JoinGroupRequestProtocol:
    name, _, topics = text.partition(":")
    return JoinGroupRequestProtocol(name, write_subscription(Subscription(topics=tuple(topics.split("+")))))


def _shown(value: object) -> str:
    match value:
        case JoinGroupResponse() if value.error_code:
            return f"{ErrorCode(value.error_code).name} member={value.member_id}"
        case JoinGroupResponse():
            skip = " skip_assignment" if value.skip_assignment else ""
            members = ", ".join(member.member_id for member in value.members)
            head = f"generation={value.generation_id} protocol={value.protocol_type}/{value.protocol_name}"
            return f"{head} leader={value.leader} member={value.member_id} members=[{members}]{skip}"
        case SyncGroupResponse() if value.error_code:
            return ErrorCode(value.error_code).name
        case SyncGroupResponse():
            assignment = value.assignment.decode() or "nothing"
            return f"assignment={assignment} protocol={value.protocol_type}/{value.protocol_name}"
        case HeartbeatResponse():
            return ErrorCode(value.error_code).name
        case LeaveGroupResponse():
            outcomes = [
                f"{entry.member_id}/{entry.group_instance_id or ''}: {ErrorCode(entry.error_code).name}"
                for entry in value.members
            ]
            return f"{ErrorCode(value.error_code).name} [{', '.join(outcomes)}]"
        case Member():
            names = "+".join(name for name, _ in value.protocols)
            static = f" static={value.instance_id}" if value.is_static else ""
            return f"({value.member_id}{static} {names} {value.session_timeout_ms}/{value.rebalance_timeout_ms})"
        case ClassicGroupStored():
            members = ", ".join(f"{member.member_id}:{member.assignment.decode()}" for member in value.members)
            head = f"{value.group_id} generation={value.generation} protocol={value.protocol_name}"
            return f"{head} leader={value.leader} members=[{members}]"
        case _:
            return _event(value)


def _event(value: object) -> str:
    """Like `short`, with members in their own form, and without the group and stamps."""
    fields = getattr(value, "__dataclass_fields__", None)
    if fields is None:
        return short(value)
    parts = []
    for name in fields:
        entry = getattr(value, name)
        if name not in ("group_id", "at_ms") and entry is not None:
            parts.append(_shown(entry) if isinstance(entry, Member) else f"{name}={short(entry)}")
    return " ".join([type(value).__name__, *parts])
