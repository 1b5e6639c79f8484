"""The stories of classic groups go as written; `--rewrite-scenarios` writes them again."""

from pathlib import Path

import pytest

from tests.scenarios.classic.stage import Stage
from tests.scenarios.runner import format_scenario, parse, run_scenario

STORIES = sorted((Path(__file__).parent / "classic").glob("*.txt"))


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_the_story_goes_as_written(path: Path, rewrite_scenarios: bool) -> None:
    run_scenario(path, Stage().commands, rewrite_scenarios)


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_the_file_has_the_form_in_which_it_would_be_written(path: Path) -> None:
    text = path.read_text("utf-8")
    assert format_scenario(*parse(text)) == text


def test_there_are_stories_to_play() -> None:
    assert len(STORIES) >= 12


STORY = "# What it tells.\n\n# why\nsay word=hello twice\n----\nhello\nhello\n"


def say(words: dict[str, str]) -> list[str]:
    return [words["word"]] * (2 if "twice" in words else 1)


def test_a_story_that_goes_otherwise_fails_and_can_be_rewritten(tmp_path: Path) -> None:
    path = tmp_path / "story.txt"
    path.write_text(STORY.replace("hello\nhello", "goodbye"), "utf-8")
    with pytest.raises(AssertionError, match=r"story\.txt:4: say word=hello twice"):
        run_scenario(path, {"say": say}, rewrite=False)
    run_scenario(path, {"say": say}, rewrite=True)
    assert path.read_text("utf-8") == STORY
    run_scenario(path, {"say": say}, rewrite=False)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("say word=hello\n----\nhello\n", "does not open with a comment"),
        ("# Nothing follows.\n", "has no commands"),
        ("# An unknown verb.\n\nshout\n----\n", "no such command: shout"),
        ("# No line between.\n\nsay word=hello\nhello\n", "no ----"),
    ],
)
def test_a_file_that_is_no_story_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "story.txt"
    path.write_text(text, "utf-8")
    with pytest.raises(AssertionError, match=complaint):
        run_scenario(path, {"say": say}, rewrite=False)
