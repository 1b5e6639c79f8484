"""Looking at a subscription without changing it: how much waits where, why nothing is delivered, where one message is.

Rules: nothing here writes, leases or counts an attempt. Everything is read from the engine's own columns, so what is
shown cannot differ from what is so.

Proved by: tests/unit/queues/test_inspection.py
"""

from dataclasses import dataclass
from typing import NamedTuple

from martlet.queues.cells import (
    ACKNOWLEDGED,
    BACKING_OFF,
    CANCELLED,
    CLOSING,
    COPYING,
    LEASED,
    NAMES,
    STRAY,
    WAITING,
    Cell,
)
from martlet.queues.engine import QueueEngine
from martlet.queues.frontier import Frontier

FINISHED_EARLIER = "finished"
NOT_THERE = "not readable yet"
SCHEDULED = "scheduled"


@dataclass(frozen=True, slots=True)
class Depth:
    """How many messages of a subscription are where."""

    waiting: int
    """Those that were never leased included."""
    leased: int
    closing: int
    """Settled, and not yet committed as such."""
    backing_off: int
    copying: int
    """On their way to the dead-letter topic."""
    oldest: int
    """The lowest offset that is not finished."""
    scheduled: int = 0
    """Delayed, and not due yet; those that a filter will leave out are counted too."""
    parked: int = 0
    """Of those that wait: behind another message of their key."""

    @property
    def total(self) -> int:
        return self.waiting + self.leased + self.closing + self.backing_off + self.copying


class MessageStatus(NamedTuple):
    """Where one message is, for one subscription."""

    state: str
    attempts: int = 0
    holder: str | None = None
    until_ms: int | None = None
    """When its lease ends, or its pause."""


def depth(engine: QueueEngine) -> Depth:
    ledger = engine.ledger
    window, strays = ledger.window, ledger.strays.tally()
    closing = sum(count for cell, count in strays.items() if cell >= CLOSING)
    frontier = engine.frontier
    return Depth(
        waiting=window.waiting + max(0, engine.end - window.frontier) + strays.get(WAITING, 0),
        leased=window.leased + strays.get(LEASED, 0),
        closing=window.closing + closing,
        backing_off=strays.get(BACKING_OFF, 0),
        copying=strays.get(COPYING, 0),
        oldest=ledger.low_mark,
        scheduled=0 if frontier is None else frontier.releases.scheduled(),
        parked=0 if frontier is None or frontier.order.keys is None else frontier.order.keys.parked,
    )


def why_nothing_is_delivered(engine: QueueEngine, now_ms: int) -> str | None:
    """The reason for people, when messages are there and none can be leased; None while all is well."""
    window, frontier = engine.ledger.window, engine.frontier
    if frontier is not None and not engine.has_deliverable and (reason := _why_nothing_seen(engine, frontier)):
        return reason
    if engine.has_deliverable or engine.end <= window.frontier:
        return None
    options, strays = engine.options, engine.ledger.strays
    if len(strays) >= options.strays_max:
        tally = strays.tally()
        return (
            f"stalled: {len(strays)} messages are outside of the window, which is the limit:"
            f" {tally.get(BACKING_OFF, 0)} back off, {tally.get(COPYING, 0)} wait for the dead-letter topic"
        )
    holders = engine.ledger.leases.holders()
    if not holders:
        return f"stalled: {window.closing} messages wait for their end to be committed"
    holder = max(holders, key=lambda one: holders[one])
    first = min(lease.deadline_ms for lease in engine.ledger.leases.of(holder))
    return (
        f"stalled: the window of {options.window_max} messages is full; {holders[holder]} of them are leased by"
        f" {holder}, the first of these leases ends in {max(0, first - now_ms)} ms"
    )


def _why_nothing_seen(engine: QueueEngine, frontier: Frontier) -> str | None:
    """What holds up a queue that looks at its messages."""
    if not frontier.is_ready:
        return "the messages that were known before a restart are looked at again"
    keys, schedule = frontier.order.keys, frontier.features.schedule
    busiest = None if keys is None else keys.busiest()
    if keys is not None and busiest is not None:
        key, count = busiest
        text = f"{keys.parked} messages wait behind others of their key"
        turn = keys.turn_of(key)
        if turn is not None:
            where = status(engine, turn)
            who = f" by {where.holder}" if where.holder else ""
            name = key[:40].decode("utf-8", "replace")
            text += f"; {count} behind key {name!r}, whose offset {turn} is {where.state}{who}"
        return f"stalled: {text}, which is the limit" if keys.is_full else text
    if schedule is not None and not schedule.is_complete:
        return "the schedule of delayed messages is being read from the log again"
    return None


def status(engine: QueueEngine, offset: int) -> MessageStatus:
    """Where the message at this offset is."""
    ledger = engine.ledger
    window, stray = ledger.window, ledger.strays.get(offset)
    if stray is not None:
        until_ms = stray.ready_ms if stray.cell == BACKING_OFF else None
        return _status(engine, stray.cell, stray.attempts, stray.slot, until_ms)
    if offset >= engine.end:
        return MessageStatus(NOT_THERE)
    if offset >= window.frontier:
        return MessageStatus(NAMES[WAITING])
    if offset in ledger.changes.cancelled:
        return MessageStatus(NAMES[CANCELLED])
    if offset < window.start or window.cell(offset) == STRAY:
        return MessageStatus(FINISHED_EARLIER)
    return _status(engine, window.cell(offset), window.attempts(offset), window.slot(offset), None)


def _status(engine: QueueEngine, cell: Cell, attempts: int, slot: int, until_ms: int | None) -> MessageStatus:
    if cell == LEASED:
        lease = engine.ledger.leases[slot]
        return MessageStatus(NAMES[LEASED], attempts, lease.holder, lease.deadline_ms)
    if cell >= CLOSING:
        return MessageStatus(f"about to be {NAMES[cell - CLOSING]}", attempts)
    return MessageStatus(NAMES[cell], attempts, None, until_ms)


def peek(engine: QueueEngine, first: int, limit: int) -> list[tuple[int, MessageStatus]]:
    """Up to `limit` messages from this offset on that are not finished, with where they are."""
    ledger = engine.ledger
    window = ledger.window
    found = {stray.offset: status(engine, stray.offset) for stray in ledger.strays if stray.offset >= first}
    left = limit
    for run in window.runs(max(first, window.start), window.frontier - 1) if first < window.frontier else ():
        if left <= 0:
            break
        if run.cell == STRAY or ACKNOWLEDGED <= run.cell < CLOSING:
            continue
        for offset in range(run.first, min(run.last, run.first + left - 1) + 1):
            found[offset] = status(engine, offset)
            left -= 1
    fresh = max(first, window.frontier)
    found.update((offset, MessageStatus(NAMES[WAITING])) for offset in range(fresh, min(engine.end, fresh + left)))
    return sorted(found.items())[:limit]
