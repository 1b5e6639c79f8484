"""Which failed queries the runner starts again, and which it takes for a mistake."""

from dataclasses import dataclass

import pytest
from sim.clock import SimClock

from martlet.spark.pipelines.flows import StreamFlow
from martlet.spark.pipelines.progress_history import ProgressHistory
from martlet.spark.pipelines.supervisor import PipelineFailed, _StreamWatch


@dataclass
class FailedQuery:
    """A query that has ended because no broker answered."""

    runId: str = "run"  # noqa: N815 - Spark's names
    isActive: bool = False  # noqa: N815

    def exception(self) -> Exception:
        return RuntimeError("no broker reachable")


class QuietBook(ProgressHistory):
    """A book in which nothing is to be waited for."""

    def wait_for_end(self, run_id: str, seconds: float) -> None:
        """All has been reported."""


def watch(clock: SimClock) -> _StreamWatch:
    flow = StreamFlow("copy", FailedQuery, None)  # type: ignore[arg-type]
    return _StreamWatch(flow, QuietBook(), "run.copy", clock)


def test_a_query_that_fails_at_its_start_is_a_mistake() -> None:
    watched = watch(SimClock())
    watched.start()
    with pytest.raises(PipelineFailed, match="no broker reachable"):
        watched.has_ended(lambda _seconds: None)


def test_a_query_that_waited_for_its_first_message_is_started_again_a_few_times_when_brokers_go_away() -> None:
    clock = SimClock()
    watched = watch(clock)
    watched.start()
    pauses: list[float] = []
    for _ in range(5):
        clock.advance(120_000)
        assert not watched.has_ended(pauses.append)
    assert (watched.status().restarts, watched.status().last_error) == (5, "no broker reachable")
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0]
    clock.advance(120_000)
    with pytest.raises(PipelineFailed):
        watched.has_ended(pauses.append)
