"""A broker's settings: which layer wins, where each value came from, what is refused and how."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from martlet.broker.ground.settings import BrokerSettings
from martlet.cli.configuration import Configuration, SettingsError, load_configuration
from martlet.cli.exit_codes import ExitCode


@pytest.fixture(autouse=True)
def _empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def load(
    flags: Mapping[str, str] | None = None, environment: Mapping[str, str] | None = None, file: str | None = None
) -> Configuration:
    named = {key: (f"--{key}", text) for key, text in (flags or {}).items()}
    return load_configuration(named, environment=environment or {}, file=file)


def test_without_anything_the_defaults_hold() -> None:
    configuration = load()
    assert configuration.settings == BrokerSettings()
    assert {str(origin) for origin in configuration.origins.values()} == {"default"}


def test_flag_beats_environment_beats_file_beats_default(tmp_path: Path) -> None:
    (tmp_path / "martlet.toml").write_text(
        'kafka = "0.0.0.0:1"\ndata = "from-file"\nrack = "r1"\nauto_create_topics = false\ndefault_partitions = 6\n'
    )
    configuration = load(
        {"kafka": "h:3", "insecure_listen": "kafka"}, {"MARTLET_KAFKA": "h:2", "MARTLET_DATA": "from-env"}
    )
    settings, origins = configuration.settings, configuration.origins
    assert (settings.kafka, str(origins["kafka"])) == ("h:3", "flag --kafka")
    assert (settings.data, str(origins["data"])) == ("from-env", "environment MARTLET_DATA")
    assert (settings.rack, str(origins["rack"])) == ("r1", "file martlet.toml: rack")
    assert (settings.auto_create_topics, settings.default_partitions) == (False, 6)
    assert str(origins["operations"]) == "default"


def test_another_file_can_be_named_by_flag_or_environment(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("broker_id = 7")
    (tmp_path / "b.toml").write_text("broker_id = 8")
    assert load(file="a.toml", environment={"MARTLET_CONFIG": "b.toml"}).settings.broker_id == 7
    assert load(environment={"MARTLET_CONFIG": "b.toml"}).settings.broker_id == 8


@pytest.mark.parametrize(("text", "value"), [("yes", True), ("ON", True), ("1", True), ("false", False), ("0", False)])
def test_switches_are_read_in_the_usual_words(text: str, value: bool) -> None:
    assert load(environment={"MARTLET_AUTO_CREATE_TOPICS": text}).settings.auto_create_topics is value


def test_an_address_without_port_gets_the_usual_one() -> None:
    assert load({"kafka": "127.0.0.1", "operations": "0.0.0.0"}).settings.operations == "0.0.0.0:9644"


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ({"kafak": "x"}, "--kafak: there is no setting 'kafak'; did you mean 'kafka'?"),
        ({"zzz": "x"}, "--zzz: there is no setting 'zzz'"),
        ({"broker_id": "one"}, "flag --broker_id: broker_id cannot be 'one'; allowed is a whole number from 0 up"),
        ({"broker_id": "-1"}, "flag --broker_id: broker_id cannot be -1; allowed is a whole number from 0 up"),
        (
            {"default_partitions": "0"},
            "flag --default_partitions: default_partitions cannot be 0; allowed is a whole number from 1 up",
        ),
        ({"kafka": "a:b"}, "flag --kafka: kafka: 'a:b' has no valid port; a port is a number from 0 to 65535"),
        ({"data": " "}, "flag --data: data cannot be ' '; allowed is text, not empty"),
        ({"log_level": "loud"}, "flag --log_level: log_level cannot be 'loud'; allowed is debug, info, warning, error"),
        (
            {"auto_create_topics": "maybe"},
            "flag --auto_create_topics: auto_create_topics cannot be 'maybe'; allowed is true or false",
        ),
    ],
)
def test_a_wrong_flag_is_refused_with_what_is_allowed(flags: dict[str, str], sentence: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(flags)
    assert str(caught.value) == sentence
    assert caught.value.exit_code == ExitCode.USAGE


@pytest.mark.parametrize(
    "key",
    [
        "group_max_size",
        "group_max_session_timeout_ms",
        "consumer_group_max_size",
        "consumer_group_session_timeout_ms",
        "consumer_group_heartbeat_interval_ms",
        "offsets_retention_minutes",
        "offsets_topic_partitions",
        "group_lag_interval_ms",
    ],
)
def test_groups_cannot_be_set_up_so_that_none_can_work(key: str) -> None:
    with pytest.raises(SettingsError, match=f"{key} cannot be 0; allowed is a whole number from 1 up"):
        load({key: "0"})


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (
            {"group_min_session_timeout_ms": "2000000"},
            "group_min_session_timeout_ms (2000000) is more than group_max_session_timeout_ms (1800000)",
        ),
        (
            {"consumer_group_heartbeat_interval_ms": "5000", "consumer_group_session_timeout_ms": "4000"},
            "consumer_group_heartbeat_interval_ms (5000) is more than consumer_group_session_timeout_ms (4000)",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(flags: dict[str, str], sentence: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(flags)
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("kafak = 1", "martlet.toml: there is no setting 'kafak'; did you mean 'kafka'?"),
        ("kafka = 9092", "file martlet.toml: kafka: kafka cannot be 9092; allowed is HOST:PORT"),
        (
            "broker_id = true",
            "file martlet.toml: broker_id: broker_id cannot be True; allowed is a whole number from 0 up",
        ),
        (
            "broker_id = 1.5",
            "file martlet.toml: broker_id: broker_id cannot be 1.5; allowed is a whole number from 0 up",
        ),
        ("[broker]\nid = 1", "martlet.toml: there is no setting 'broker'; did you mean 'broker_id'?"),
        (
            "kafka = ",
            "the configuration file martlet.toml is not valid TOML: Invalid value (at end of document)",
        ),
    ],
)
def test_a_wrong_file_is_refused_with_its_name_and_key(tmp_path: Path, content: str, sentence: str) -> None:
    (tmp_path / "martlet.toml").write_text(content)
    with pytest.raises(SettingsError) as caught:
        load()
    assert str(caught.value) == sentence


def test_a_file_that_is_missing_or_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"there is no configuration file nope.toml"):
        load(file="nope.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(SettingsError, match=r"the configuration file binary.toml is not UTF-8 text"):
        load(file="binary.toml")


def test_an_unknown_variable_is_noted_but_those_of_others_are_not() -> None:
    configuration = load(
        environment={
            "MARTLET_KAFAK": "x",
            "MARTLET_BOOTSTRAP": "h:1",
            "MARTLET_SERVICE_HOST": "10.0.0.1",
            "MARTLET_PORT_9092_TCP": "tcp://10.0.0.1:9092",
            "MARTLET_PORT": "tcp://10.0.0.1:9092",
        }
    )
    assert configuration.notes == (
        "the environment variable MARTLET_KAFAK names no setting and is ignored; did you mean 'kafka'?",
    )


def test_named_listeners_are_checked_with_the_place_they_come_from() -> None:
    configuration = load({"listeners": "a=plain://[::1]:1,b=sasl_tls://h:2", "broker_listener": "b"})
    assert configuration.settings.broker_listener == "b"
    for flags, sentence in (
        ({"listeners": "a=ssl://h:1"}, "flag --listeners: listeners: there is no protocol 'ssl'"),
        ({"listeners": "a=tls://h:1"}, "flag --listeners: the listener a at h:1 would let in anybody"),
        ({"kafka": "0.0.0.0"}, "flag --kafka: the listener kafka at 0.0.0.0:9092 would let in anybody"),
        ({"insecure_listen": "b"}, "flag --insecure_listen: insecure_listen: there is no listener 'b'"),
        ({"sasl_mechanisms": "x"}, "flag --sasl_mechanisms: sasl_mechanisms: 'x' is not offered"),
        ({"super_users": "x"}, "flag --super_users: super_users: 'x' is no principal"),
        ({"broker_listener": "x"}, "flag --broker_listener: broker_listener: there is no listener 'x'; there is kafka"),
        ({"listeners": "a=plain://h:1", "kafka": "h:2"}, "flag --kafka and flag --listeners both say where"),
        ({"advertised": ":9"}, "flag --advertised: advertised: ':9' has no host"),
    ):
        with pytest.raises(SettingsError, match=re.escape(sentence)):
            load(flags)
