"""kafka-python in groups."""

import pytest

from tests.clients.group_behaviour import GroupBehaviour
from tests.clients.group_members import KafkaPythonMember


@pytest.mark.filterwarnings("ignore::ResourceWarning")
class TestKafkaPython(GroupBehaviour):
    """The classic protocol as the pure Python client speaks it."""

    kind = KafkaPythonMember
