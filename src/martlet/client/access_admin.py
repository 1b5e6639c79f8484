"""Users and access rules, asked for and changed over the protocol.

Changes are sent once. A refusal is an ApiError with the broker's sentence.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from martlet.base.randomness import Randomness, SystemRandomness
from martlet.base.secret import Secret
from martlet.client.answers import check, only
from martlet.client.apis import ALTER_USERS, CREATE_ACLS, DELETE_ACLS, DESCRIBE_ACLS, DESCRIBE_USERS
from martlet.client.cluster import Cluster
from martlet.security.rules import Operation, Pattern, PatternKind, Permission, ResourceKind, Rule
from martlet.security.scram import ITERATIONS_DEFAULT, SALT_BYTES, ScramMechanism, salt_password
from martlet.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from martlet.wire.messages.create_acls import AclCreation, CreateAclsRequest
from martlet.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from martlet.wire.messages.describe_acls import DescribeAclsRequest
from martlet.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest

_CODES: Final = {ScramMechanism.SHA_256: 1, ScramMechanism.SHA_512: 2}
_ANY: Final = 1


class UserEntry(NamedTuple):
    """A user, and the iterations of the credential for each mechanism."""

    name: str
    credentials: Mapping[ScramMechanism, int]


class AccessAdmin:
    """Asks any broker: all have the same users and rules."""

    def __init__(self, cluster: Cluster, randomness: Randomness | None = None) -> None:
        self._cluster = cluster
        self._randomness = randomness or SystemRandomness()

    async def users(self) -> list[UserEntry]:
        """All users, by name."""
        connection = await self._cluster.any_connection()
        answer = await connection.call(DESCRIBE_USERS, DescribeUserScramCredentialsRequest(None))
        check(answer.error_code, answer.error_message, "the users cannot be listed")
        mechanisms = {code: mechanism for mechanism, code in _CODES.items()}
        return [
            UserEntry(
                result.user,
                {
                    mechanisms[info.mechanism]: info.iterations
                    for info in result.credential_infos
                    if info.mechanism in mechanisms
                },
            )
            for result in answer.results
        ]

    async def set_password(self, name: str, password: Secret) -> None:
        """Give a user this password for both mechanisms; one that there is not is made."""
        upsertions = []
        for mechanism, code in _CODES.items():
            salt = self._randomness.token(SALT_BYTES)
            salted = salt_password(mechanism, password, salt, ITERATIONS_DEFAULT)
            upsertions.append(ScramCredentialUpsertion(name, code, ITERATIONS_DEFAULT, salt, salted))
        await self._alter(AlterUserScramCredentialsRequest([], upsertions), name)

    async def delete_user(self, user: UserEntry) -> None:
        """Take all credentials from a user."""
        gone = [ScramCredentialDeletion(user.name, _CODES[mechanism]) for mechanism in user.credentials]
        await self._alter(AlterUserScramCredentialsRequest(gone, []), user.name)

    async def rules(self) -> list[Rule]:
        """All access rules that this client understands."""
        connection = await self._cluster.any_connection()
        request = DescribeAclsRequest(_ANY, None, _ANY, None, None, _ANY, _ANY)
        answer = await connection.call(DESCRIBE_ACLS, request)
        check(answer.error_code, answer.error_message, "the access rules cannot be listed")
        return [
            Rule(
                Pattern(ResourceKind(found.resource_type), PatternKind(found.pattern_type), found.resource_name),
                acl.principal,
                acl.host,
                Operation(acl.operation),
                Permission(acl.permission_type),
            )
            for found in answer.resources
            for acl in found.acls
        ]

    async def add_rules(self, rules: Sequence[Rule]) -> None:
        """Have these rules in force."""
        connection = await self._cluster.any_connection()
        answer = await connection.call(CREATE_ACLS, CreateAclsRequest([_creation(rule) for rule in rules]))
        for rule, result in zip(rules, answer.results, strict=True):
            check(result.error_code, result.error_message, f"the rule '{rule}' was refused")

    async def remove_rules(self, rules: Iterable[Rule]) -> None:
        """Have these rules in force no longer."""
        connection = await self._cluster.any_connection()
        answer = await connection.call(DELETE_ACLS, DeleteAclsRequest([_exactly(rule) for rule in rules]))
        for result in answer.filter_results:
            check(result.error_code, result.error_message, "a rule could not be removed")

    async def _alter(self, request: AlterUserScramCredentialsRequest, name: str) -> None:
        connection = await self._cluster.any_connection()
        result = only((await connection.call(ALTER_USERS, request)).results)
        check(result.error_code, result.error_message, f"user {name!r} was not changed")


def _creation(rule: Rule) -> AclCreation:
    kind, match, name = rule.pattern
    return AclCreation(kind, name, match, rule.principal, rule.host, rule.operation, rule.permission)


def _exactly(rule: Rule) -> DeleteAclsFilter:
    kind, match, name = rule.pattern
    return DeleteAclsFilter(kind, name, match, rule.principal, rule.host, rule.operation, rule.permission)
