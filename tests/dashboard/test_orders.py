"""Buttons of the pages: which targets they take, and the call of the API that each becomes."""

from __future__ import annotations

import pytest

from holdfast.api.errors import ApiError
from holdfast.dashboard.orders import call_of


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("drains", "/v1/brakes/drains/release"),
        ("task_drains@prod-1.a_b", "/v1/brakes/task_drains%40prod-1.a_b/release"),
    ],
)
def test_a_brake_is_released_by_its_name(name: str, path: str) -> None:
    call, _ = call_of("release-brake", {"target": name, "reason": "one cable"})
    assert (call.path, call.body) == (path, {"reason": "one cable"})


@pytest.mark.parametrize("name", ["", "drains@", "drains@a/b", "drains@a b", "@prod", "drains@a@b", "drains/../pause"])
def test_what_names_no_brake_is_no_button(name: str) -> None:
    with pytest.raises(ApiError):
        call_of("release-brake", {"target": name})
