"""Groups that continued with different state are notified, by name, in the first step of each quorum and in no other."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the extra 'train' is not installed")
pytest.importorskip("torchft.coordination", reason="the extra 'train' is not installed")

from holdfast_train.peers.likeness import Likeness, digest  # noqa: E402

pytestmark = pytest.mark.slow


class Part:
    def __init__(self, value: float) -> None:
        self.tensor, self.looked = torch.full((3,), value), 0

    def state_dict(self) -> dict[str, Any]:
        self.looked += 1
        return {"t": self.tensor, "n": 1}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.tensor = state["t"]


def step(groups: list[Likeness], quorum: int) -> list[tuple[str, ...]]:
    """One step of these groups, which a sum connects."""
    sent: list[Any] = []
    for group in groups:
        group.begin(quorum, sent.append)
    total = sum(flat.clone() for flat in sent)
    for flat in sent:
        flat.copy_(total)
    return [group.settle(quorum, 7) for group in groups]


def groups(*values: float) -> tuple[list[Part], list[Likeness]]:
    parts = [Part(value) for value in values]
    return parts, [Likeness({"ema": part, "same": Part(0.0)}, torch.device("cpu")) for part in parts]


def test_a_difference_is_named_once_in_each_quorum(caplog: pytest.LogCaptureFixture) -> None:
    parts, three = groups(1.0, 1.0, 1.0)
    assert step(three, 1) == [()] * 3
    parts[2].tensor += 1
    assert step(three, 1) == [()] * 3
    assert caplog.messages == []
    assert step(three, 2) == [("ema",)] * 3
    assert step(three, 2) == [()] * 3
    assert sum("event=extra_differs step=7 groups=3 names=ema" in line for line in caplog.messages) == 3
    assert [part.looked for part in parts] == [2, 2, 2], "its digest costs a read of all of it"


def test_a_group_for_which_the_quorum_is_not_new_does_not_count() -> None:
    _, (first, second, third) = groups(1.0, 1.0, 2.0)
    assert step([first, third], 1) == [("ema",)] * 2
    assert step([first, second], 1) == [(), ()]
    assert step([second, third], 1) == [(), ()]


def test_without_extra_there_is_no_collective() -> None:
    alone = Likeness({}, torch.device("cpu"))
    assert alone.begin(1, lambda _flat: pytest.fail("a collective")) is None
    assert alone.settle(1, 1) == ()


def test_a_digest_is_of_every_bit_and_name() -> None:
    assert digest(Part(1.0)) == digest(Part(1.0)) != digest(Part(1.0000001))
