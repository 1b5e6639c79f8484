"""When small answers leave: the first of a turn of the event loop at once, the others together when the turn ends.

A write wakes the client that waits for it, and waking costs more than all the rest of a small request. A client with
many connections, woken for each answer, does one thing and sleeps again; given all answers of a turn it is woken twice.
A lone answer never waits.
"""

from collections.abc import Callable
from typing import Protocol


class Sender(Protocol):
    """A connection, as far as the outbox cares."""

    def send_waiting(self) -> None: ...


class Outbox:
    """Shared by the connections of one event loop; `call_soon` runs what it is given before the loop waits again."""

    __slots__ = ("_call_soon", "_is_turn_begun", "_waiting")

    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._call_soon = call_soon
        self._is_turn_begun = False
        self._waiting: list[Sender] = []

    def may_send(self, sender: Sender) -> bool:
        """Whether to send now; if not, `send_waiting` is called when the turn ends."""
        if self._is_turn_begun:
            self._waiting.append(sender)
            return False
        self._is_turn_begun = True
        self._call_soon(self._end_turn)
        return True

    def _end_turn(self) -> None:
        self._is_turn_begun = False
        waiting, self._waiting = self._waiting, []
        for sender in waiting:
            sender.send_waiting()
