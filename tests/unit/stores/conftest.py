"""The stores that need nothing but this process."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.stores.store_workshop import LocalWorkshop


@pytest.fixture(params=["sqlite", "sim"])
async def workshop(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[LocalWorkshop]:
    made = LocalWorkshop(request.param, tmp_path)
    yield made
    await made.close()
