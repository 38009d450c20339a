"""Answers about a world are found once, and no other world has them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from holdfast.decisions.common.once import once_per_world
from holdfast.model.book import Book, World
from holdfast.model.policies.policy import Policy


def test_it_is_looked_for_once_for_each_world_and_argument() -> None:
    looked: list[tuple[str | None, str]] = []

    @once_per_world
    def find(world: World, name: str) -> str:
        looked.append((world.frozen, name))
        return f"{world.frozen} {name}"

    @once_per_world
    def other(world: World, name: str) -> str:
        return name

    first = World(datetime(2026, 3, 1, tzinfo=UTC), Policy(), Book(), None, frozen="first")
    second = replace(first, frozen="second")
    assert [find(first, "n1"), find(first, "n1"), find(first, "n2")] == ["first n1", "first n1", "first n2"]
    assert [find(second, "n1"), other(second, "n1"), find(second, "n1")] == ["second n1", "n1", "second n1"]
    assert looked == [("first", "n1"), ("first", "n2"), ("second", "n1")]
    assert first == replace(first), "what was asked of a world is no part of it"
