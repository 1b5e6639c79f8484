"""The access rules at work: read from the metadata, asked for every request, and every denial written down.

Requests that come as messages pass the gate of their API here, before their handler; the handlers of Produce and Fetch
ask `may` for each topic.

Invariant: ACL-5 an API without a gate is served to super users only.

Proved by: tests/unit/broker/access/test_access_rules.py, tests/broker/test_access_rules.py
"""

import logging
from typing import Any

from martlet.base.errors import ProtocolViolation
from martlet.base.ids import TopicId
from martlet.broker.access.audit import Audit
from martlet.broker.ground.request import Link
from martlet.cluster.image import ImageDelta, MetadataImage
from martlet.cluster.records import AccessRecord, AccessRule
from martlet.security.authorizer import Authorizer, Viewer
from martlet.security.gates.gate import Admission, Asker, TopicNames
from martlet.security.gates.table import GATES
from martlet.security.rules import Operation, Pattern, PatternKind, Permission, ResourceKind, Rule
from martlet.wire.api_keys import api_name

logger = logging.getLogger(__name__)


class AccessRules:
    """Owned by the broker; lives on its event loop."""

    def __init__(self, authorizer: Authorizer, image: MetadataImage, audit: Audit) -> None:
        self.authorizer = authorizer
        self._audit = audit
        self._topics = TopicNames(
            name_of=lambda topic_id: _name_of(image, topic_id),
            exists=lambda name: image.topic(name) is not None,
            all=lambda: (topic.name for topic in image.topics()),
        )
        records = image.access_records().values()
        authorizer.table.apply((), [rule for record in records for rule in read_rules(record)])

    def follow(self, delta: ImageDelta) -> None:
        """Take over a change of the rules; it is in force with the next request."""
        if not delta.access:
            return
        before = [rule for change in delta.access if change.before is not None for rule in read_rules(change.before)]
        after = [rule for change in delta.access if change.after is not None for rule in read_rules(change.after)]
        self.authorizer.table.apply(set(before) - set(after), set(after) - set(before))

    def viewer(self, link: Link) -> Viewer:
        """What this client may do."""
        session = link.session
        if session.viewer is None:
            session.viewer = self.authorizer.viewer(session.principal, link.peer.host)
        return session.viewer

    def may(self, link: Link, operation: Operation, topic: str, api: str) -> bool:
        """Whether this client may read or write a topic."""
        if self.viewer(link).may(operation, ResourceKind.TOPIC, topic):
            return True
        self._audit.denied(link, api, f"{operation.name} topic {topic!r}")
        return False

    def may_use_group(self, link: Link, group_id: str, api: str) -> bool:
        """Whether this client may read as a member of a group."""
        if self.viewer(link).may(Operation.READ, ResourceKind.GROUP, group_id):
            return True
        self._audit.denied(link, api, f"READ group {group_id!r}")
        return False

    def admit(self, api_key: int, request: Any, link: Link, version: int) -> Admission:
        """What the handler may see of a request, and what else its answer must say."""
        gate = GATES.get(api_key)
        viewer = self.viewer(link)
        if gate is None:
            if viewer.is_super_user:
                return Admission(request)
            self._audit.denied(link, api_name(api_key), "the API has no gate")
            raise ProtocolViolation(f"{api_name(api_key)} is not served under access rules")
        asker = Asker(viewer, version, self._topics)
        admission = gate(request, asker)
        for operation, kind, name in asker.denials:
            self._audit.denied(link, api_name(api_key), f"{operation.name} {kind.name.lower()} {name!r}")
        return admission


def read_rules(record: AccessRecord) -> list[Rule]:
    """The rules of a record; of what a later version wrote, nothing is allowed and all that it denies is denied."""
    kind, match, name = record.pattern
    try:
        pattern = Pattern(ResourceKind[kind.upper()], PatternKind[match.upper()], name)
    except KeyError:
        logger.error("the access rules for %s %s are not understood here and left out", kind, name)
        return []
    rules = []
    for principal, host, word, permission in record.rules:
        denies = permission != Permission.ALLOW.name.lower()
        operation = Operation.__members__.get(word.upper())
        if operation is None:
            logger.error("an access rule for %r says %r, which is not understood here", name, word)
            if not denies:
                continue
            operation = Operation.ALL
        rules.append(Rule(pattern, principal, host, operation, Permission.DENY if denies else Permission.ALLOW))
    return rules


def write_pattern(pattern: Pattern) -> tuple[str, str, str]:
    """A resource pattern as the metadata store keeps it."""
    return pattern.kind.name.lower(), pattern.match.name.lower(), pattern.name


def write_rule(rule: Rule) -> AccessRule:
    """A rule as the metadata store keeps it, beside its pattern."""
    return AccessRule(rule.principal, rule.host, rule.operation.name.lower(), rule.permission.name.lower())


def _name_of(image: MetadataImage, topic_id: bytes) -> str | None:
    topic = image.topic_by_id(TopicId(topic_id))
    return topic.name if topic is not None else None
