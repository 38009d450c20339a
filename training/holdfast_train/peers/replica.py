"""State of a training group as its peers need it: the part that depends only on the steps, and the small rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from holdfast_train.errors import TransferFailed
from holdfast_train.tensors.buckets import Buckets
from holdfast_train.tensors.shards import local, model_state, optimizer_state, plain


class Stateful(Protocol):
    """Interface of a model, an optimizer or another object of the user."""

    def state_dict(self) -> Any:
        """State of numbers, texts, tensors, and lists, tuples and dictionaries of these."""

    def load_state_dict(self, state_dict: Any) -> Any:
        """Load such a state."""


@dataclass(frozen=True, slots=True)
class At:
    """Position of a group that caught up: number of steps, and the quorum in which the last was committed."""

    step: int
    quorum: int


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """Replacement of a peer's whole state: the steps that are still missing, and the rest that steps do not determine."""

    deltas: list[dict[str, Any]]
    rest: dict[str, Any]


class Replica:
    """Model and optimizer of one group. Not thread-safe."""

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
        """One step of the optimizer with these gradients, for the first time or repeated."""
        self._buckets.hand_out(flats)
        self._before_step()
        self._optimizer.step()
        self._after_step()

    def let_go(self) -> None:
        """Whether the gradients of this step are kept."""
        self._buckets.let_go()

    def options(self) -> list[dict[str, Any]]:
        """Present options of the optimizer's groups, including the learning rate."""
        return [
            {key: value.clone() if isinstance(value, torch.Tensor) else value for key, value in group.items()
             if key != "params"}
            for group in self._optimizer.param_groups
        ]  # fmt: skip

    # State that depends only on the steps: the same bits in every group

    def bulk(self) -> dict[str, Any]:
        """Parameters and their optimizer state."""
        return {"model": self._parameters(), "optimizer": plain(self._optimizer.state_dict())}

    def bulk_bytes(self) -> int:
        held = [v for values in self._optimizer.state.values() for v in values.values() if isinstance(v, torch.Tensor)]
        return sum(local(t).numel() * t.element_size() for t in (*self._parameters().values(), *held))

    def load_bulk(self, bulk: dict[str, Any]) -> None:
        """Load a state completely, or not at all if a part does not fit. Raises TransferFailed."""
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
        """Repeat a step of the others, with bit-identical results."""
        self._set(delta["options"])
        self.apply([flat.to(mine.device) for flat, mine in zip(delta["flats"], self._buckets.flats(), strict=True)])

    def check(self, delta: dict[str, Any]) -> None:
        """Raise TransferFailed for a step that does not belong to this training."""
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

    # The rest: each group's own buffers, and the user's objects

    def rest(self) -> dict[str, Any]:
        """The rest: small, and sent completely when a group joins."""
        parameters = dict(self._model.named_parameters(remove_duplicate=False))
        others = {name: value for name, value in self._model.state_dict().items() if name not in parameters}
        extra = {name: part.state_dict() for name, part in self._extra.items()}
        return {"others": plain(others), "extra": extra, "options": self.options()}

    def finish(self, missing: CaughtUp) -> int:
        """Apply the last steps, and the rest: this group then equals its peers. Returns the quorum of their last step."""
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
