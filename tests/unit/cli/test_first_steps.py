"""The commands of the banner can be typed as they are printed."""

import shlex
from pathlib import Path

import pytest

from martlet.cli.first_steps import print_first_steps, program_to_type
from martlet.cli.options import DEFAULT_BOOTSTRAP


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "an environment" / "bin" / "martlet"
    path.parent.mkdir(parents=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_a_program_on_the_path_is_called_by_its_name(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(script.parent))
    assert program_to_type(str(script), "/usr/bin/python3") == "martlet"


def test_a_program_that_is_not_on_the_path_is_called_by_its_whole_path(
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.chdir(script.parent.parent)
    printed = program_to_type("bin/martlet", "/usr/bin/python3")
    assert shlex.split(printed) == [str(script)]


def test_another_martlet_on_the_path_is_not_mistaken_for_this_one(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "martlet"
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert shlex.split(program_to_type(str(script), "/usr/bin/python3")) == [str(script)]


def test_a_module_run_by_an_interpreter_is_run_by_the_same_one_again() -> None:
    assert program_to_type("-c", "/opt/a python") == "'/opt/a python' -m martlet.cli.main"


def test_the_address_is_left_out_where_it_is_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    print_first_steps(DEFAULT_BOOTSTRAP, ("consume", "hello"))
    assert "--bootstrap" not in capsys.readouterr().out
    print_first_steps("127.0.0.1:1234", ("consume", "hello"))
    assert "martlet.cli.main consume --bootstrap 127.0.0.1:1234 hello\n" in capsys.readouterr().out
