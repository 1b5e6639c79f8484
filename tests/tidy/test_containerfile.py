"""The image's recipe is checked by its linter, since the machines that test this have nothing to build it with."""

import subprocess
import sys
from pathlib import Path

from tests.tidy.source_tree import ROOT


def test_the_linter_finds_nothing_in_the_recipe_of_the_image() -> None:
    linter = Path(sys.executable).parent / "hadolint"
    done = subprocess.run([linter, ROOT / "Containerfile"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
