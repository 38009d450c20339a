"""Orders whose duration a user can influence: how many of one user a node's agent has at a time. Pure."""

from __future__ import annotations

from collections import Counter

from holdfast.model.actions.action import SendOrder, Verb
from holdfast.model.book import World

MOST_OF_A_USER_ON_A_NODE = 3
"""Most orders about one user's files in flight to one node. An agent carries out four at a time: one is left for the other users."""
_FILES = (Verb.OUTPUT, Verb.JOB_NOTE)


def of_users_on_nodes(world: World) -> Counter[tuple[object, str | None]]:
    """Orders about files in flight, by the user's id and the node."""
    orders = (i.action for i in world.book.intents.values() if not i.settled and isinstance(i.action, SendOrder))
    return Counter((order.args.get("uid"), order.node) for order in orders if order.verb in _FILES)
