"""`martlet user` and `martlet acl` against a real broker, and verbs that come as a user."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from martlet.testing.running_broker import RunningBroker
from tests.broker.sasl import LISTENERS, address_of
from tests.unit.cli.command_line import Ran
from tests.unit.cli.command_line import martlet as run_martlet


@pytest.fixture
def guarded() -> Iterator[RunningBroker]:
    with RunningBroker(**LISTENERS, access_rules=True, super_users="User:ANONYMOUS") as running:
        yield running


def martlet(broker: RunningBroker, *arguments: str, stdin: bytes = b"", config: Path | None = None) -> Ran:
    """Through the open listener, or as the user that the file says."""
    listener = "open" if config is None else "clients"
    environment = {"MARTLET_BOOTSTRAP": address_of(broker, listener), "MARTLET_CLIENT_CONFIG": str(config or "")}
    return run_martlet(*arguments, stdin=stdin, environment=environment)


def config_of(directory: Path, password: str) -> Path:
    file = directory / f"{password}.properties"
    lines = ["# alice", "security.protocol=SASL_PLAINTEXT", "sasl.username = alice", f"sasl.password={password}"]
    file.write_text("\n".join(lines))
    file.chmod(0o600)
    return file


def test_a_user_is_added_comes_with_the_password_and_is_deleted(guarded: RunningBroker, tmp_path: Path) -> None:
    added = martlet(guarded, "user", "add", "alice", "--password-file", "-", stdin=b"wonderland\n")
    assert added.exit_code == 0, added.stderr
    assert "wonderland" not in added.stdout + added.stderr
    listed = json.loads(martlet(guarded, "user", "list", "--json").stdout)
    assert listed == [{"user": "alice", "mechanisms": ["SCRAM-SHA-256", "SCRAM-SHA-512"]}]
    alice = config_of(tmp_path, "wonderland")
    assert martlet(guarded, "topic", "list", config=alice).exit_code == 0
    wrong = martlet(guarded, "topic", "list", "--timeout", "2", config=config_of(tmp_path, "wrong"))
    assert wrong.exit_code != 0
    assert "credentials were refused" in wrong.stderr
    assert martlet(guarded, "user", "delete", "alice", "--yes").exit_code == 0
    assert martlet(guarded, "user", "delete", "alice", "--yes").exit_code == 3
    assert martlet(guarded, "topic", "list", "--timeout", "2", config=alice).exit_code != 0


def test_rules_allow_deny_explain_and_go(guarded: RunningBroker, tmp_path: Path) -> None:
    martlet(guarded, "user", "add", "alice", "--password-file", "-", stdin=b"wonderland\n")
    alice = config_of(tmp_path, "wonderland")
    assert martlet(guarded, "topic", "create", "payments").exit_code == 0
    assert "payments" not in martlet(guarded, "topic", "list", config=alice).stdout
    denied = martlet(guarded, "acl", "test", "alice", "describe", "topic:payments")
    assert (denied.exit_code, denied.stdout) == (1, "denied: no rule allows it\n")
    explained = json.loads(martlet(guarded, "acl", "test", "alice", "describe", "topic:payments", "--json").stdout)
    assert explained == {"allowed": False, "reason": "no rule allows it"}
    rule = {
        "principal": "User:alice",
        "host": "*",
        "permission": "allow",
        "operation": "read",
        "resource": "topic:pay*",
    }
    added = martlet(guarded, "acl", "allow", "alice", "read", "topic:pay*", "--json")
    assert (added.exit_code, json.loads(added.stdout)) == (0, rule)
    allowed = martlet(guarded, "acl", "test", "alice", "describe", "topic:payments")
    assert (allowed.exit_code, allowed.stdout) == (0, "allowed: User:alice from * may READ topic 'pay'…\n")
    assert "payments" in martlet(guarded, "topic", "list", config=alice).stdout
    assert martlet(guarded, "acl", "deny", "alice", "all", "topic:payments").exit_code == 0
    assert "payments" not in martlet(guarded, "topic", "list", config=alice).stdout
    listed = json.loads(martlet(guarded, "acl", "list", "--json").stdout)
    assert {(rule["permission"], rule["operation"], rule["resource"]) for rule in listed} == {
        ("deny", "all", "topic:payments"),
        ("allow", "read", "topic:pay*"),
    }
    removed = martlet(guarded, "acl", "remove", "alice", "all", "topic:payments", "--json")
    denial = rule | {"permission": "deny", "operation": "all", "resource": "topic:payments"}
    assert (removed.exit_code, json.loads(removed.stdout)) == (0, [denial])
    assert "payments" in martlet(guarded, "topic", "list", config=alice).stdout
    assert "there was no such rule" in martlet(guarded, "acl", "remove", "bob", "alter", "cluster").stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("acl", "allow", "alice", "read", "payments"), "is not KIND:NAME with a kind of topic, group"),
        (("acl", "allow", "alice", "levitate", "topic:a"), "'levitate' is none of all, read, write"),
        (("acl", "allow", "alice", "write", "group:a"), "WRITE means nothing for a GROUP"),
        (("acl", "test", "alice", "read", "topic:a*"), "one resource, by its whole name"),
        (("user", "add", "alice"), "no password can be asked for"),
        (("user", "add", "alice", "--password-file", "-"), "the password is empty"),
    ],
)
def test_what_cannot_be_is_refused_before_a_broker_is_asked(arguments: tuple[str, ...], sentence: str) -> None:
    ran = run_martlet(*arguments, environment={"MARTLET_BOOTSTRAP": "127.0.0.1:1"})
    assert ran.exit_code == 2
    assert sentence in ran.stderr


def test_a_client_config_that_cannot_be_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    for text, mode, sentence in (
        ("sasl.password=x", 0o644, "holds a password and may be read by others; chmod 600 it"),
        ("security.protocol", 0o600, "line 1: this is not NAME=VALUE"),
        ("security.protocol=TLS", 0o600, "security.protocol is 'TLS'; allowed are PLAINTEXT"),
    ):
        file.write_text(text)
        file.chmod(mode)
        ran = run_martlet("topic", "list", "--client-config", str(file))
        assert ran.exit_code == 2
        assert sentence in ran.stderr
    missing = run_martlet("topic", "list", "--client-config", str(tmp_path / "missing"))
    assert "cannot be read" in missing.stderr
