"""Server-side assignors: pure functions from members and topics to who shall own which partition.

`uniform.py` levels the load over all members, `range_by_topic.py` deals the partitions of each topic out in ranges;
both stand on `pool.py`, which spreads things evenly with few moves. They know nothing of epochs or requests.
"""

from collections.abc import Mapping
from typing import Final

from martlet.groups.consumer.assignors.range_by_topic import assign_range
from martlet.groups.consumer.assignors.specification import Assignor
from martlet.groups.consumer.assignors.uniform import assign_uniform

ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}
"""Every assignor this broker has, by the name members ask for it."""
