"""The state of a training group as its peers need it: what is a function of the steps alone, and the small rest that is not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from holdfast_train.buckets import Buckets
from holdfast_train.errors import TransferFailed
from holdfast_train.shards import local, model_state, optimizer_state, plain


class Stateful(Protocol):
    """What a model, an optimizer or anything else of the user's has."""

    def state_dict(self) -> Any:
        """Numbers, texts, tensors, and lists, tuples and dictionaries of these."""

    def load_state_dict(self, state_dict: Any) -> Any:
        """Takes such a state over."""


@dataclass(frozen=True, slots=True)
class At:
    """Where a group stands that caught up: after so many steps, the last of them committed in this quorum."""

    step: int
    quorum: int


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """In place of a peer's whole state: the steps that are still missing, and what no step brings about."""

    deltas: list[dict[str, Any]]
    rest: dict[str, Any]


class Replica:
    """Model and optimizer of one group. Not safe for several threads."""

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        buckets: Buckets,
        extra: Mapping[str, Stateful],
        before_step: Callable[[], object] | None = None,
        after_step: Callable[[], object] | None = None,
    ) -> None:
        """``before_step``: called with the gradients in place; ``after_step``: with the step taken."""
        self._model, self._optimizer, self._buckets, self._extra = model, optimizer, buckets, extra
        self._before_step, self._after_step = before_step or (lambda: None), after_step or (lambda: None)

    def apply(self, flats: list[torch.Tensor]) -> None:
        """One step of the optimizer with these gradients: live, or again."""
        self._buckets.hand_out(flats)
        self._before_step()
        self._optimizer.step()
        self._after_step()

    def let_go(self) -> None:
        """Somebody keeps the gradients of this step."""
        self._buckets.let_go()

    def options(self) -> list[dict[str, Any]]:
        """What the optimizer's groups are set to now, the learning rate among it."""
        return [
            {key: value.clone() if isinstance(value, torch.Tensor) else value for key, value in group.items()
             if key != "params"}
            for group in self._optimizer.param_groups
        ]  # fmt: skip

    # What follows from the steps alone: the same bits in every group

    def bulk(self) -> dict[str, Any]:
        """Parameters, and what the optimizer holds for them."""
        return {"model": self._parameters(), "optimizer": plain(self._optimizer.state_dict())}

    def bulk_bytes(self) -> int:
        held = [v for values in self._optimizer.state.values() for v in values.values() if isinstance(v, torch.Tensor)]
        return sum(local(t).numel() * t.element_size() for t in (*self._parameters().values(), *held))

    def load_bulk(self, bulk: dict[str, Any]) -> None:
        """All of it fits, or none of it is taken. Raises TransferFailed."""
        mine, theirs = self._parameters(), bulk["model"]
        wrong = [n for n in {*mine, *theirs} if n not in mine or n not in theirs or not _alike(mine[n], theirs[n])]
        if wrong:
            raise TransferFailed(f"a peer's model differs from ours in {min(wrong)} and {len(wrong) - 1} more places")
        try:
            self._optimizer.load_state_dict(optimizer_state(self._optimizer, bulk["optimizer"]))
        except (KeyError, ValueError, RuntimeError) as error:
            raise TransferFailed(f"a peer's optimizer differs from ours: {str(error)[:200]!r}") from error
        with torch.no_grad():
            for name, parameter in mine.items():
                parameter.copy_(theirs[name])

    def replay(self, delta: dict[str, Any]) -> None:
        """A step of the others, done here again: to the same bits."""
        self._set(delta["options"])
        self.apply([flat.to(mine.device) for flat, mine in zip(delta["flats"], self._buckets.flats(), strict=True)])

    def check(self, delta: dict[str, Any]) -> None:
        """Raises TransferFailed for a step that is not one of this training."""
        options, mine = delta.get("options"), self._optimizer.param_groups
        flats = delta.get("flats")
        if (
            not isinstance(flats, list)
            or not all(isinstance(flat, torch.Tensor) for flat in flats)
            or not self._buckets.fit(flats)
            or not isinstance(options, list)
            or [sorted(o) for o in options] != [sorted(g.keys() - {"params"}) for g in mine]
        ):
            raise TransferFailed("a step of a peer is not one of this training: is it another program?")

    # What does not: each group's own buffers, and the user's objects

    def rest(self) -> dict[str, Any]:
        """Small, and sent whole when a group joins."""
        parameters = dict(self._model.named_parameters(remove_duplicate=False))
        others = {name: value for name, value in self._model.state_dict().items() if name not in parameters}
        extra = {name: part.state_dict() for name, part in self._extra.items()}
        return {"others": plain(others), "extra": extra, "options": self.options()}

    def finish(self, missing: CaughtUp) -> int:
        """The last steps, and the rest: now this group is as its peers are. Returns the quorum of their last step."""
        for delta in missing.deltas:
            self.replay(delta)
        rest = missing.rest
        self._set(rest["options"])
        self._model.load_state_dict(model_state(self._model.state_dict(), rest["others"]), strict=False)
        for name, part in self._extra.items():
            part.load_state_dict(rest["extra"][name])
        return int(rest["quorum"])

    def _parameters(self) -> dict[str, torch.Tensor]:
        return {name: local(parameter.detach()) for name, parameter in self._model.named_parameters()}

    def _set(self, options: list[dict[str, Any]]) -> None:
        for group, given in zip(self._optimizer.param_groups, options, strict=True):
            group.update(given)


def _alike(mine: Any, theirs: Any) -> bool:
    return isinstance(theirs, torch.Tensor) and (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)
