"""Connections remembered by name: what the verbs of `martlet profile` do, and which connection a verb then uses."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from martlet.cli.profiles import Profile, Profiles, profiles_path, read_profiles, write_profiles
from martlet.testing.running_broker import RunningBroker
from tests.unit.cli.command_line import Ran, martlet

NOWHERE = "127.0.0.1:1"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with RunningBroker() as running:
        yield running.bootstrap_servers


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "new" / "profiles.toml"


def run(file: Path, *arguments: str, **environment: str) -> Ran:
    return martlet(*arguments, environment={"MARTLET_PROFILES": str(file), **environment})


def test_the_first_profile_is_in_use_and_verbs_then_need_no_address(address: str, file: Path) -> None:
    made = run(file, "profile", "create", "here", "--bootstrap", address)
    assert (made.exit_code, "it is in use" in made.stderr) == (0, True)
    assert run(file, "status").exit_code == 0


def test_a_profile_is_used_once_by_its_name_and_from_now_on_by_use(address: str, file: Path) -> None:
    run(file, "profile", "create", "away", "--bootstrap", NOWHERE)
    run(file, "profile", "create", "here", "--bootstrap", address)
    assert run(file, "status", "--timeout", "1").exit_code == 6
    assert run(file, "status", "--profile", "here").exit_code == 0
    assert run(file, "status", MARTLET_PROFILE="here").exit_code == 0
    assert run(file, "profile", "use", "here").exit_code == 0
    assert run(file, "status").exit_code == 0


def test_a_flag_wins_over_a_named_profile_that_over_variables_and_these_over_the_profile_in_use(
    address: str, file: Path
) -> None:
    run(file, "profile", "create", "away", "--bootstrap", NOWHERE)
    assert run(file, "status", "--profile", "away", "--bootstrap", address).exit_code == 0
    assert run(file, "status", MARTLET_BOOTSTRAP=address).exit_code == 0
    assert run(file, "status", "--profile", "away", "--timeout", "1", MARTLET_BOOTSTRAP=address).exit_code == 6


def test_the_password_of_the_profile_in_use_goes_to_no_other_address(address: str, file: Path, tmp_path: Path) -> None:
    secrets = tmp_path / "client.properties"
    secrets.write_text("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\nsasl.username=a\n")
    run(file, "profile", "create", "work", "--bootstrap", NOWHERE, "--client-config", str(secrets))
    assert run(file, "status", "--bootstrap", address).exit_code == 0
    refused = run(file, "status", "--bootstrap", address, "--profile", "work")
    assert (refused.exit_code, str(secrets) in refused.stderr) == (2, True)


def test_profiles_are_listed_shown_and_forgotten(file: Path) -> None:
    assert "there are no profiles" in run(file, "profile", "list").stderr
    run(file, "profile", "create", "home", "--bootstrap", "a:1,b", "--timeout", "2.5")
    run(file, "profile", "create", "work", "--bootstrap", "c")
    assert run(file, "profile", "list").stdout.splitlines() == [
        "   PROFILE  BOOTSTRAP   CLIENT CONFIG",
        "*  home     a:1,b:9092  -",
        "   work     c:9092      -",
    ]
    shown = json.loads(run(file, "profile", "show", "--json").stdout)
    assert shown == {"name": "home", "in_use": True, "bootstrap": "a:1,b:9092", "timeout": 2.5}
    assert "none is in use now" in run(file, "profile", "delete", "home").stderr
    assert run(file, "profile", "show").exit_code == 3
    assert [each["name"] for each in json.loads(run(file, "profile", "list", "--json").stdout)] == ["work"]


@pytest.mark.parametrize(
    ("command", "exit_code", "words"),
    [
        (("status", "--profile", "hone"), 3, "there is no profile 'hone'\n hint: did you mean 'home'?"),
        (("profile", "create", "home", "--bootstrap", "a"), 5, "--replace"),
        (("profile", "use"), 2, "name a profile, or give --none"),
        (("profile", "delete", "work"), 3, "`martlet profile list` shows the profiles"),
    ],
)
def test_what_cannot_be_done_is_said_with_what_can(
    file: Path, command: tuple[str, ...], exit_code: int, words: str
) -> None:
    run(file, "profile", "create", "home", "--bootstrap", NOWHERE)
    ran = run(file, *command)
    assert (ran.exit_code, words in ran.stderr) == (exit_code, True), ran.stderr


@pytest.mark.parametrize(
    "text",
    ["not toml", "profile = 3", "in-use = 3", "[profile.a]\nport = 3", "[profile.a]\nbootstrap = 3", "profile.a = 3"],
)
def test_a_file_that_cannot_be_understood_is_named_with_the_reason(tmp_path: Path, text: str) -> None:
    file = tmp_path / "profiles.toml"
    file.write_text(text)
    ran = run(file, "status")
    assert (ran.exit_code, str(file) in ran.stderr) == (2, True), ran.stderr


def test_whatever_a_profile_is_called_it_is_read_back_as_it_was_written(file: Path) -> None:
    odd = Profiles(in_use='a "b"\\\x7f\n.ü', by_name={'a "b"\\\x7f\n.ü': Profile(bootstrap="a:1", timeout=3)})
    write_profiles(odd, file)
    assert read_profiles(file) == odd


def test_the_file_lies_where_settings_of_programs_lie() -> None:
    assert profiles_path({"XDG_CONFIG_HOME": "/x"}) == Path("/x/martlet/profiles.toml")
    assert profiles_path({"MARTLET_PROFILES": "/y"}) == Path("/y")
    assert profiles_path({}) == Path("~/.config/martlet/profiles.toml").expanduser()
