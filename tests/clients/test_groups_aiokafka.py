"""aiokafka in groups."""

from tests.clients.group_behaviour import GroupBehaviour
from tests.clients.group_members import AiokafkaMember


class TestAiokafka(GroupBehaviour):
    """The classic protocol as the asyncio client speaks it."""

    kind = AiokafkaMember
