"""The option that writes what scenarios show into their files, for a look at the difference before it is kept."""

from typing import cast

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite-scenarios", action="store_true", help="write the scenarios' output into their files")


@pytest.fixture
def rewrite_scenarios(request: pytest.FixtureRequest) -> bool:
    """Whether to write expectations instead of checking them; never when the option was not known at the start."""
    return cast(bool, request.config.getoption("--rewrite-scenarios", default=False))
