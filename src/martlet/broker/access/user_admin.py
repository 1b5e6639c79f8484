"""Changes who there is: users and their SCRAM credentials in the metadata store."""

from collections.abc import Mapping, Sequence

from martlet.base.errors import ApiError, ErrorCode
from martlet.broker.access.users import BROKER_USER, write_credential
from martlet.broker.membership.metadata_changes import MetadataChanges
from martlet.cluster.records import UserRecord
from martlet.cluster.security_decisions import plan_user
from martlet.cluster.store import CommitPlan
from martlet.security.scram import ScramCredential, ScramMechanism


class UserAdmin:
    """Safe to call from many tasks of one event loop."""

    def __init__(self, changes: MetadataChanges) -> None:
        self._changes = changes
        self._image = changes.image

    async def change(
        self,
        name: str,
        removed: Sequence[ScramMechanism],
        given: Mapping[ScramMechanism, ScramCredential],
    ) -> None:
        """Take credentials from a user and give others; a user without any is gone."""
        check_user_name(name)

        def decide() -> CommitPlan | None:
            stored = self._image.users().get(name) or UserRecord(name)
            credentials = dict(stored.credentials)
            for mechanism in removed:
                if credentials.pop(mechanism.value, None) is None:
                    raise ApiError(ErrorCode.RESOURCE_NOT_FOUND, f"{name!r} has no credential for {mechanism.value}")
            credentials |= {mechanism.value: write_credential(one) for mechanism, one in given.items()}
            return plan_user(stored, UserRecord(name, credentials))

        await self._changes.execute(decide)


def check_user_name(name: str) -> None:
    """Raise UNACCEPTABLE_CREDENTIAL for a name that no user can have."""
    if not name or len(name) > 255 or any(character < " " or character == "\x7f" for character in name):
        raise ApiError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL, "a user's name has 1 to 255 characters and no control characters"
        )
    if name == BROKER_USER:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"{BROKER_USER!r} is the user of the brokers themselves")
