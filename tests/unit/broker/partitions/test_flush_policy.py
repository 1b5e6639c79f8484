"""The default policy decides by the number of replicas; the others are what they say."""

import pytest

from martlet.broker.partitions.flush_policy import FlushMode, FlushPolicy, decide_flush_mode


@pytest.mark.parametrize(
    ("replicas", "mode"), [(1, FlushMode.COMMIT), (2, FlushMode.INTERVAL), (3, FlushMode.INTERVAL)]
)
def test_auto_commits_to_the_device_only_while_there_is_one_replica(replicas: int, mode: FlushMode) -> None:
    assert decide_flush_mode("auto", replicas) is mode


@pytest.mark.parametrize("mode", list(FlushMode))
def test_an_explicit_mode_is_kept_whatever_the_replicas(mode: FlushMode) -> None:
    assert decide_flush_mode(mode.value, 1) is mode
    assert decide_flush_mode(mode.value, 3) is mode


def test_only_commit_flushes_before_it_acknowledges() -> None:
    waiting = {mode for mode in FlushMode if FlushPolicy(mode, 1000, 10).before_acknowledge}
    assert waiting == {FlushMode.COMMIT}
