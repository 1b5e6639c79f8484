"""What a newcomer types: every block of the README that a broker serves, in its order, as it is printed there.

Only the address differs, since a test takes any free port. Blocks on Spark are run by tests/spark/test_first_hour.py,
`./dev` by `./dev bench install`.
"""

import os
import subprocess
import sys
from pathlib import Path

from martlet.cli.options import DEFAULT_BOOTSTRAP
from martlet.testing.running_broker import RunningBroker
from tests.documented_code import CodeBlock, code_blocks


def test_the_readme_can_be_followed_from_top_to_bottom(
    broker: RunningBroker, clean_environment: dict[str, str], tmp_path: Path
) -> None:
    programs = f"{Path(sys.executable).parent}{os.pathsep}{clean_environment['PATH']}"
    environment = clean_environment | {"PATH": programs, "MARTLET_BOOTSTRAP": broker.bootstrap_servers}
    blocks = [block for block in code_blocks("README.md") if "./dev" not in block.text and "spark" not in block.text]
    printed = [_run(block, broker.bootstrap_servers, environment, tmp_path) for block in blocks]
    assert [block.language for block in blocks] == ["python", "sh"]
    assert printed[0] == "b'two coffees'\n"
    assert "12.50 EUR\n" in printed[1]
    assert "orders" in printed[1], "the lag of the group that the first block made"


def _run(block: CodeBlock, address: str, environment: dict[str, str], directory: Path) -> str:
    """What a block prints; the test fails with the block's own error."""
    command = [sys.executable, "-c"] if block.language == "python" else ["sh", "-e", "-c"]
    text = block.text.replace(DEFAULT_BOOTSTRAP, address)
    done = subprocess.run(
        [*command, text], cwd=directory, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, f"{block.text}\n{done.stderr}"
    return done.stdout
