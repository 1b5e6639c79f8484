"""ListGroups 0–5: the groups that this broker coordinates, and no others, or tools would see them several times.

v4 filters by state, v5 by type; neither cares about case, and an unknown word lets nothing pass. While a part of
the groups is being loaded the answer is COORDINATOR_LOAD_IN_PROGRESS.
"""

from collections.abc import Iterable
from itertools import islice
from typing import Final

from martlet.base.errors import ApiError
from martlet.broker.ground.request import RequestContext
from martlet.broker.services import BrokerServices
from martlet.groups.ports import STATES, TYPES
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

KEY: Final = ApiKey.LIST_GROUPS
VERSIONS: Final = (0, 5)
REQUEST: Final = ListGroupsRequest


async def handle(broker: BrokerServices, request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
    """Gather the groups of all shards."""
    states, types = _words(request.states_filter, STATES), _words(request.types_filter, TYPES)
    try:
        lists = await broker.groups.call_all(lambda machine, now_ms: machine.list_groups(states, types, now_ms))
    except ApiError as error:
        return ListGroupsResponse(error_code=error.code)
    groups = [group for found in lists for group in found]
    groups.sort(key=_name_of)
    return ListGroupsResponse(groups=groups)


def _words(asked: Iterable[str], known: frozenset[str]) -> frozenset[str]:
    """The filter's words, in small letters. One unknown word is enough: it lets nothing pass."""
    words = frozenset(word.lower() for word in asked)
    return words & known or frozenset(islice(words, 1))


def _name_of(group: ListedGroup) -> str:
    return group.group_id
