"""`martlet topic export` and `import` against a real broker."""

import json
from pathlib import Path

from tests.cli.conftest import Martlet


def test_what_was_exported_can_be_imported_again(martlet: Martlet, tmp_path: Path) -> None:
    martlet("topic", "create", "kept.a", "--partitions", "2", "--set", "retention.ms=5000")
    martlet("topic", "create", "kept.b")
    file = tmp_path / "topics.json"
    assert martlet("topic", "export", "kept.a", "kept.b", "--file", str(file)).exit_code == 0
    assert [row["name"] for row in json.loads(file.read_text())["topics"]] == ["kept.a", "kept.b"]
    assert martlet("topic", "import", str(file)).stderr == "changed 0 topics\n"
    martlet("topic", "delete", "kept.a", "--yes")
    martlet("topic", "alter", "kept.b", "--set", "retention.ms=1")
    shown = martlet("topic", "import", str(file), "--dry-run")
    diff = "+ kept.a: 2 partitions, 1 replicas\n+ kept.a: retention.ms = 5000\n- kept.b: retention.ms = 1\n"
    assert (shown.stdout, shown.stderr) == (diff, "would change 2 topics\n")
    done = martlet("topic", "import", str(file))
    assert (done.exit_code, done.stdout, done.stderr) == (0, diff, "changed 2 topics\n")
    assert json.loads(martlet("topic", "export", "kept.a", "kept.b").stdout) == json.loads(file.read_text())


def test_an_import_grows_topics_and_says_what_it_does_not_do(martlet: Martlet) -> None:
    martlet("topic", "create", "grown")
    martlet("topic", "create", "wide", "--partitions", "3")
    wanted = [{"name": "grown", "partitions": 4, "replicas": 1}, {"name": "wide", "partitions": 1, "replicas": 1}]
    ran = martlet("topic", "import", "-", stdin=json.dumps({"topics": wanted}).encode())
    assert (ran.exit_code, ran.stdout) == (5, "~ grown: partitions 1 -> 4\n")
    assert "not done: wide has 3 partitions, which never become fewer; the file wants 1\n" in ran.stderr
    [grown, _] = json.loads(martlet("topic", "export", "grown", "wide").stdout)["topics"]
    assert grown["partitions"] == 4
    report = json.loads(martlet("topic", "import", "-", "--json", stdin=json.dumps({"topics": wanted}).encode()).stdout)
    assert [row["create"] for row in report] == [False, False]


def test_files_and_topics_that_are_not_there_are_named(martlet: Martlet) -> None:
    broken = martlet("topic", "import", "-", stdin=b"{")
    assert (broken.exit_code, broken.stderr) == (2, "error: <stdin> is not JSON: line 1, column 2\n")
    assert martlet("topic", "import", "/no/such/file").exit_code == 2
    assert martlet("topic", "export", "no-such").exit_code == 3
