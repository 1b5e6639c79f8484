"""`martlet config get` and `set` against a real broker: brokers, topics and groups."""

import json
from typing import Any

from tests.cli.conftest import Martlet


def shown(martlet: Martlet, *arguments: str) -> dict[str, Any]:
    ran = martlet("config", "get", *arguments, "--json")
    assert ran.exit_code == 0, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def test_a_setting_is_changed_for_all_brokers_and_taken_back(martlet: Martlet) -> None:
    before = shown(martlet, "log.retention.ms")["log.retention.ms"]
    changed = martlet("config", "set", "log.retention.ms=86400000")
    assert (changed.exit_code, changed.stderr) == (0, "changed for all brokers: log.retention.ms=86400000\n")
    after = shown(martlet, "log.retention.ms")["log.retention.ms"]
    assert (after["value"], after["origin"]) == ("86400000", "dynamic default broker")
    one = martlet("config", "set", "--broker", "1", "log.retention.ms=3600000")
    assert one.stderr == "changed for broker 1: log.retention.ms=3600000\n"
    assert shown(martlet, "--broker", "1")["log.retention.ms"]["origin"] == "dynamic broker"
    for owner in (["--broker", "1"], []):
        assert martlet("config", "set", "--unset", "log.retention.ms", *owner).exit_code == 0
    assert shown(martlet, "log.retention.ms")["log.retention.ms"] == before


def test_topics_and_groups_have_settings_of_their_own(martlet: Martlet) -> None:
    martlet("topic", "create", "configured")
    assert martlet("config", "set", "--topic", "configured", "retention.ms=5000", "--json").exit_code == 0
    assert shown(martlet, "--topic", "configured", "retention.ms")["retention.ms"]["origin"] == "topic"
    assert martlet("config", "set", "--group", "crew", "consumer.session.timeout.ms=50000").exit_code == 0
    found = shown(martlet, "--group", "crew")["consumer.session.timeout.ms"]
    assert (found["value"], found["origin"]) == ("50000", "group")


def test_whose_settings_are_shown_is_said(martlet: Martlet) -> None:
    assert martlet("config", "get", "log.retention.ms").stderr == "settings in effect for broker 1\n"
    assert "settings of a broker started here" in martlet("config", "show").stderr


def test_a_wrong_name_is_answered_with_the_nearest_and_fixed_ones_are_refused(martlet: Martlet) -> None:
    ran = martlet("config", "get", "log.retention.m")
    assert (ran.exit_code, ran.stderr) == (
        3,
        "error: broker 1 has no setting 'log.retention.m'\n hint: did you mean 'log.retention.ms'?\n",
    )
    martlet("topic", "create", "misnamed")
    ran = martlet("config", "set", "--topic", "misnamed", "retention.m=5")
    assert (ran.exit_code, "did you mean 'retention.ms'?" in ran.stderr) == (2, True)
    fixed = martlet("config", "set", "--broker", "1", "broker.id=7")
    assert (fixed.exit_code, "cannot be changed while the broker runs" in fixed.stderr) == (1, True)
    assert martlet("config", "set").exit_code == 2
    both = martlet("config", "set", "a=1", "--unset", "a")
    assert (both.exit_code, "cannot be set and unset at once" in both.stderr) == (2, True)
    assert martlet("config", "get", "--broker", "1", "--topic", "t").exit_code == 2
