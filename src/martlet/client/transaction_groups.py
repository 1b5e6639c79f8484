"""Groups of transactions: many processes write, each in a transaction of its own, and one call ends them together.

A program takes its group over with `open` and gets a token. Its tasks write as ordinary transactional producers, each
attempt under the id that `child_id` gives, and never commit. `end` then decides the step: the winners are committed,
all others aborted, all or nothing (decision 0032). Each call may be sent twice: the broker answers a repetition as it
answered the first time, so a lost answer is simply asked for again.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from martlet.base.ids import TRANSACTION_GROUP_PREFIX
from martlet.client.accumulator import ProducerIdentity
from martlet.client.answers import check
from martlet.client.apis import END_TRANSACTION_GROUP, OPEN_TRANSACTION_GROUP
from martlet.client.cluster import Cluster
from martlet.client.connection import Connection
from martlet.client.coordinators import Coordinated, Coordinators
from martlet.wire.messages.end_transaction_group import EndTransactionGroupRequest, Winner
from martlet.wire.messages.open_transaction_group import OpenTransactionGroupRequest

_ABORT_ONLY: Final = -1


class GroupToken(NamedTuple):
    """What a run decides with, and how far its group is."""

    group: str
    identity: ProducerIdentity
    last_sequence: int
    """The last step decided; -1 before the first."""
    note: bytes = b""
    """What was noted with it."""


class Child(NamedTuple):
    """One attempt's open transaction."""

    transactional_id: str
    identity: ProducerIdentity


class Decision(NamedTuple):
    """How a step was ended, now or before."""

    already_done: bool
    last_sequence: int
    note: bytes


def child_id(token: GroupToken, sequence: int, task: int, attempt: int) -> str:
    """The transactional id under which an attempt of a task writes in a step."""
    return f"{TRANSACTION_GROUP_PREFIX}{token.group}#{token.identity.producer_epoch}.{sequence}.{task}.{attempt}"


class TransactionGroups:
    """Stateless but for the coordinators it has found; owns nothing that needs closing."""

    def __init__(self, cluster: Cluster) -> None:
        self._coordinators = Coordinators(cluster, Coordinated.TRANSACTION)

    async def open(
        self,
        group: str,
        run_id: bytes,
        *,
        place: str = "",
        next_sequence: int = 0,
        start_over: bool = False,
        take_over: bool = False,
    ) -> GroupToken:
        """Take the group over for a run (16 bytes that no other run has); older runs are fenced."""
        request = OpenTransactionGroupRequest(group, run_id, place, next_sequence, start_over, take_over)

        async def ask(connection: Connection) -> GroupToken:
            answer = await connection.call(OPEN_TRANSACTION_GROUP, request)
            what = f"the group of transactions {group!r} was not opened"
            check(answer.error_code, answer.error_message, what)
            identity = ProducerIdentity(answer.producer_id, answer.producer_epoch)
            return GroupToken(group, identity, answer.last_sequence, answer.note)

        return await self._coordinators.call(TRANSACTION_GROUP_PREFIX + group, ask)

    async def end(self, token: GroupToken, sequence: int, winners: Sequence[Child], note: bytes = b"") -> Decision:
        """Commit the winners of a step and abort its other children, all or nothing.

        ApiError TRANSACTION_ABORTABLE when a winner is not open any more; then nothing has changed.
        """
        if sequence < 0:
            raise ValueError(f"{sequence} is no step of a group; they count from 0")
        return await self._end(token, sequence, winners, note)

    async def give_up(self, token: GroupToken) -> None:
        """Abort what the run has open; a step that is decided stays so."""
        await self._end(token, _ABORT_ONLY, (), b"")

    async def _end(self, token: GroupToken, sequence: int, winners: Sequence[Child], note: bytes) -> Decision:
        named = [Winner(winner.transactional_id, *winner.identity) for winner in winners]
        request = EndTransactionGroupRequest(token.group, *token.identity, sequence, named, note)

        async def ask(connection: Connection) -> Decision:
            answer = await connection.call(END_TRANSACTION_GROUP, request)
            check(answer.error_code, answer.error_message, f"step {sequence} of group {token.group!r} was not ended")
            return Decision(answer.already_done, answer.last_sequence, answer.note)

        return await self._coordinators.call(TRANSACTION_GROUP_PREFIX + token.group, ask)
