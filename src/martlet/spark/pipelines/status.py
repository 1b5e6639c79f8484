"""What is known of a run: plain data that is written to a file, shown by the command and read by programs.

Rules: pure; field names are what `--json` shows and keep their meaning.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self


class RunState(StrEnum):
    """Where a run stands."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    FINISHED = "finished"
    """It had an end and reached it."""
    STOPPED = "stopped"
    """It was asked to stop."""
    FAILED = "failed"
    DIED = "died"
    """Its process is gone without a word."""


@dataclass(frozen=True, slots=True)
class FlowStatus:
    """One query of a run; None is: not known, or nothing of the kind."""

    name: str
    batch: int | None = None
    rows: int = 0
    input_rows_per_second: float | None = None
    processed_rows_per_second: float | None = None
    batch_ms: int | None = None
    lag_messages: int | None = None
    lag_seconds: float | None = None
    state_rows: int | None = None
    state_bytes: int | None = None
    restarts: int = 0
    last_error: str | None = None


@dataclass(frozen=True, slots=True)
class RunStatus:
    """A run with its queries."""

    name: str
    pipeline: str
    state: RunState
    pid: int
    master: str
    started_at_ms: int
    updated_at_ms: int
    flows: tuple[FlowStatus, ...] = field(default=())
    last_error: str | None = None

    def with_state(self, state: RunState) -> Self:
        return dataclasses.replace(self, state=state)

    def as_data(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        flows = tuple(FlowStatus(**flow) for flow in data["flows"])
        return cls(**{**data, "state": RunState(data["state"]), "flows": flows})
