"""The stories of migration go as written; `--rewrite-scenarios` writes them again."""

from pathlib import Path

import pytest

from tests.scenarios.consumer.stage import Stage
from tests.scenarios.runner import run_scenario

STORIES = sorted((Path(__file__).parent / "migration").glob("*.txt"))


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_the_story_goes_as_written(path: Path, rewrite_scenarios: bool) -> None:
    run_scenario(path, Stage().commands, rewrite_scenarios)


def test_there_are_stories_to_play() -> None:
    assert len(STORIES) >= 3
