"""The command itself: help, version, completion, settings, and how quickly it answers."""

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import martlet as package
from martlet.cli.configuration import DEFAULTS
from martlet.cli.up import up
from tests.unit.cli.command_line import martlet

HEAVY = (
    "asyncio",
    "kio",
    "uvloop",
    "prometheus_client",
    "lz4",
    "zstandard",
    "numpy",
    "martlet.wire",
    "martlet.client.cluster",
)


def test_help_names_every_command_and_every_exit_code() -> None:
    ran = martlet("--help")
    assert (ran.exit_code, ran.stderr) == (0, "")
    for word in ("up", "broker", "topic", "publish", "consume", "group", "status", "config", "completion"):
        assert f"  {word}" in ran.stdout
    assert "Exit codes:" in ran.stdout
    assert "  130" in ran.stdout


@pytest.mark.parametrize(
    "command",
    [
        "up",
        "broker",
        "topic",
        "topic create",
        "topic list",
        "topic describe",
        "topic alter",
        "topic delete",
        "publish",
        "consume",
        "group",
        "group list",
        "group describe",
        "group lag",
        "group reset",
        "group delete",
        "status",
        "config",
        "config show",
        "completion",
    ],
)
def test_every_command_explains_itself(command: str) -> None:
    ran = martlet(*command.split(), "--help")
    assert ran.exit_code == 0
    assert ran.stdout.startswith(f"Usage: martlet {command} ")


def test_without_arguments_the_help_is_shown() -> None:
    ran = martlet()
    assert ran.exit_code == 2
    assert "Usage: martlet" in ran.stdout + ran.stderr


def test_a_mistyped_command_is_answered_with_the_right_one() -> None:
    ran = martlet("topics")
    assert ran == (2, "", "error: no such command 'topics'\n hint: did you mean 'topic'?\n")


def test_the_version_names_python_and_the_record_codec() -> None:
    ran = martlet("--version")
    assert ran.exit_code == 0
    assert ran.stdout.startswith(f"martlet {package.__version__} (Python 3.")
    assert ran.stdout.rstrip().endswith(("record codec: compiled)", "record codec: numpy)", "record codec: plain)"))


@pytest.mark.parametrize(
    ("shell", "marker"), [("bash", "complete -o"), ("zsh", "#compdef martlet"), ("fish", "complete ")]
)
def test_a_completion_script_is_printed_for_each_shell(shell: str, marker: str) -> None:
    ran = martlet("completion", shell)
    assert (ran.exit_code, ran.stderr) == (0, "")
    assert marker in ran.stdout
    assert "_MARTLET_COMPLETE" in ran.stdout


def test_commands_are_completed_without_importing_them() -> None:
    environment = {"_MARTLET_COMPLETE": "bash_complete", "COMP_WORDS": "martlet co", "COMP_CWORD": "1"}
    assert martlet(environment=environment) == (0, "plain,consume\nplain,config\nplain,completion\n", "")


def test_settings_are_shown_with_value_origin_and_meaning() -> None:
    ran = martlet("config", "show", "--data", "here", "--set", "rack=r1", environment={"MARTLET_BROKER_ID": "5"})
    rows = {line.split()[0]: line.split(maxsplit=2)[1:] for line in ran.stdout.splitlines()}
    assert set(rows) == {"SETTING", *DEFAULTS}
    assert rows["data"][0] == "here"
    assert rows["data"][1].startswith("flag --data ")
    assert rows["rack"][1].startswith("flag --set rack ")
    assert rows["broker_id"][1].startswith("environment MARTLET_BROKER_ID ")
    assert rows["kafka"][1].startswith("default ")
    shown = json.loads(martlet("config", "show", "--json").stdout)
    assert shown["kafka"] == {
        "value": "127.0.0.1:9092",
        "origin": "default",
        "from": None,
        "help": "address that serves the Kafka protocol; port 0 takes any free port",
    }


def test_a_wrong_setting_is_refused_before_anything_starts() -> None:
    ran = martlet("up", "--set", "default_partitions=none")
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert ran.stderr == (
        "error: flag --set default_partitions: default_partitions cannot be 'none'; "
        "allowed is a whole number from 1 up\n"
    )
    ran = martlet("up", "--set", "nonsense")
    assert (ran.exit_code, ran.stderr) == (
        2,
        "error: invalid value for '--set': 'nonsense' is not KEY=VALUE\n"
        " hint: `martlet up --help` shows what it takes\n",
    )


@pytest.mark.parametrize(
    ("command", "error", "hint"),
    [
        ("topic create x --partitons 3", "no such option '--partitons'", "did you mean '--partitions'?"),
        ("topic creat x", "no such command 'creat'", "did you mean 'create'?"),
        ("publish", "missing argument 'TOPIC'", "`martlet publish --help` shows what it takes"),
        (
            "topic create x --partitions 0",
            "invalid value for '--partitions': 0 is not in the range x>=1",
            "`martlet topic create --help` shows what it takes",
        ),
    ],
)
def test_a_refused_command_line_speaks_like_every_other_error(command: str, error: str, hint: str) -> None:
    assert martlet(*command.split()) == (2, "", f"error: {error}\n hint: {hint}\n")


def test_a_file_in_place_of_the_data_directory_is_refused_naming_the_option(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for place in (file, file / "below"):
        ran = martlet("up", "--data", str(place))
        assert (ran.exit_code, ran.stderr) == (
            4,
            f"error: cannot keep data in {place}: it is a file, not a directory\n"
            " hint: choose another directory with --data DIR\n",
        )


def test_help_texts_show_no_control_characters() -> None:
    assert "\b" not in martlet("consume", "--help").stdout
    assert r"\b" not in martlet("consume", "--help").stdout


def test_the_defaults_named_in_the_help_are_the_real_ones() -> None:
    helps = {parameter.name: getattr(parameter, "help", "") for parameter in up.params}
    for name in ("data", "kafka", "operations"):
        assert f"[default: {DEFAULTS[name]}]" in helps[name]


def test_help_imports_nothing_heavy() -> None:
    for command in ("", "up", "topic", "publish", "consume", "group"):
        arguments = [*command.split(), "--help"]
        code = (
            "import sys\nfrom martlet.cli.main import run\n"
            f"code = run({arguments!r})\n"
            f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)\nsys.exit(code)"
        )
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        loaded = ran.stderr.strip()
        assert loaded in ("[]", "['asyncio']"), (arguments, loaded)


@pytest.mark.parametrize("arguments", [["--help"], ["topic", "--help"]])
def test_help_needs_less_than_a_third_of_a_second(arguments: list[str]) -> None:
    """Of processor time, and the best of five, so that a busy machine does not fail the test."""
    code = f"from martlet.cli.main import run; run({arguments!r})"
    taken = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    assert min(taken) < 0.3


def verbs(*above: str) -> list[tuple[str, ...]]:
    """Every command line of names that ends in a verb, groups opened up."""
    shown = martlet(*above, "--help").stdout.partition("\nCommands:\n")[2].partition("\n\n")[0]
    below = [line.split()[0] for line in shown.splitlines() if line[:3].strip()]
    return [found for name in below for found in verbs(*above, name)] or [above]


def test_no_line_of_help_about_a_command_is_cut_short() -> None:
    groups = {verb[:-1] for verb in verbs() if len(verb) > 1} | {()}
    assert len(groups) > 10
    for group in sorted(groups):
        commands = martlet(*group, "--help").stdout.partition("\nCommands:\n")[2]
        assert [line for line in commands.splitlines() if line.endswith("...")] == [], group


def test_every_verb_that_a_program_may_read_prints_json() -> None:
    for_people = {("up",), ("broker",), ("completion",), ("topic", "export")}
    for_people |= {("profile", verb) for verb in ("create", "use", "delete")}
    without = {verb for verb in verbs() if "--json" not in martlet(*verb, "--help").stdout}
    assert without == for_people, "topic export prints JSON anyway"
