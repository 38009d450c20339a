"""Answers that a turn asks for many times, found once for each world. Pure: a world does not change, so neither does an answer about it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar, TypeVarTuple, cast

from holdfast.model.book import World

About = TypeVarTuple("About")
T = TypeVar("T")


def once_per_world(find: Callable[[World, *About], T]) -> Callable[[World, *About], T]:
    """The function, which looks once for each world and other arguments, all of them hashable. No one may change its answer."""

    @wraps(find)
    def found(world: World, *about: *About) -> T:
        key = (find, *about)
        if key not in world.answers:
            world.answers[key] = find(world, *about)
        return cast(T, world.answers[key])

    return found
