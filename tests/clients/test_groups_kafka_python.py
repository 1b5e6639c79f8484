"""kafka-python in groups."""

from collections.abc import Iterator

import pytest

from tests.clients.group_behaviour import CooperativeBehaviour, GroupBehaviour, leaks_collected
from tests.clients.group_members import CooperativeKafkaPythonMember, KafkaPythonMember


@pytest.fixture(autouse=True)
def no_leaks() -> Iterator[None]:
    with leaks_collected():
        yield


@pytest.mark.filterwarnings("ignore::ResourceWarning")
class TestKafkaPython(GroupBehaviour):
    """The classic protocol as the pure Python client speaks it."""

    kind = KafkaPythonMember


@pytest.mark.filterwarnings("ignore::ResourceWarning")
class TestCooperativeKafkaPython(CooperativeBehaviour):
    """The same with its cooperative assignor."""

    kind = CooperativeKafkaPythonMember
