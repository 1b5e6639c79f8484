"""The compaction of one log: at most one plan at a time, made and completed on the loop, run in a thread.

    plan = log.plan_compaction(now_ms, up_to_offset=high_watermark)    which segments
    plan.run()                                                         in a thread: writes `.cleaned` files
    log.compaction.complete(plan)                                      swaps them in (`compaction_swap`)

Invariants: COMP-1 only what is flushed, committed and decided is compacted; COMP-2 that batches may be
missing is on the device before any is.
Proved by: tests/unit/log/test_compaction.py, tests/properties/test_log_compaction.py
"""

from martlet.log.compaction import CompactionPlan, Source, choose_segments
from martlet.log.durability import Durability
from martlet.log.log_parts import LogParts
from martlet.log.options import LogOptions
from martlet.log.producer_replay import ProducerReplay
from martlet.log.transaction_cleaning import LastOfProducers


class LogCompaction:
    """Owned by one log."""

    __slots__ = ("_durability", "_parts", "_plan", "_replay", "cleaned_offset")

    def __init__(self, parts: LogParts, durability: Durability, replay: ProducerReplay) -> None:
        self._parts = parts
        self._durability = durability
        self._replay = replay
        self._plan: CompactionPlan | None = None
        self.cleaned_offset = 0
        """Up to where the log has been compacted."""

    def plan(self, options: LogOptions, now_ms: int, *, up_to_offset: int) -> CompactionPlan | None:
        """What to compact now, if enough has changed and no other plan is under way.

        `up_to_offset` is the high watermark; what is not flushed or not decided below it stays as it is (COMP-1).
        """
        parts = self._parts
        if self._plan is not None and not self._plan.is_over:
            return None
        stable_offset = parts.producers.transactions.stable_below(up_to_offset)
        segments = choose_segments(
            parts.segments,
            options,
            now_ms=now_ms,
            up_to_offset=min(self._durability.recovery_point, stable_offset),
            first_dirty_offset=self.cleaned_offset,
        )
        if not segments:
            return None
        self._plan = CompactionPlan(
            disk=parts.disk,
            directory=parts.directory,
            options=options,
            now_ms=now_ms,
            generation=self._durability.generation,
            sources=[Source(segment, segment.file) for segment in segments],
            first_dirty_offset=self.cleaned_offset,
            last_of_producers=LastOfProducers(parts.producers.items()),
            aborted=self._replay.aborted_transactions(segments[0].base_offset, segments[-1].next_offset),
        )
        return self._plan

    def complete(self, plan: CompactionPlan) -> bool:
        """Put what the plan has written in place; groups whose segments changed meanwhile are dropped (then False)."""
        parts = self._parts
        self._plan = None
        plan.is_over = True
        is_whole = True
        for group in plan.groups:
            is_current = plan.generation == self._durability.generation and parts.segments.hold(group.segments)
            is_whole = is_whole and is_current
            if group.replacement is None:
                continue
            if not is_current:
                group.discard(parts.disk)
                continue
            parts.gaps.note_compaction()
            parts.segments.gaps_are(parts.gaps.known)
            group.replacement.gaps, group.replacement.epochs = parts.gaps.known, parts.epochs
            group.put_in_place(parts.disk, parts.directory, parts.segments)
            self._durability.sealed(group.replacement)
        if is_whole:
            self.cleaned_offset = max(self.cleaned_offset, plan.cleaned_offset)
        parts.snapshots.keep_only({segment.base_offset for segment in parts.segments})
        return is_whole
