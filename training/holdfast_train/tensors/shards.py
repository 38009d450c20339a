"""This rank's part of tensors: the local shard of a sharded one (DTensor), the whole of any other."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed.tensor import DTensor

from holdfast_train.errors import TrainError


def local(tensor: torch.Tensor) -> torch.Tensor:
    """Shares its memory with the tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def like(part: torch.Tensor, whole: torch.Tensor) -> torch.Tensor:
    """This rank's part as what ``whole`` is: sharded the same way, or as it is."""
    if not isinstance(whole, DTensor):
        return part
    return DTensor.from_local(
        part, whole.device_mesh, whole.placements, run_check=False, shape=whole.shape, stride=whole.stride()
    )


def local_gradient(parameter: torch.nn.Parameter) -> torch.Tensor | None:
    """This rank's part of the gradient, laid out as the parameter is."""
    gradient = parameter.grad
    if isinstance(gradient, DTensor) and isinstance(parameter, DTensor) and gradient.placements != parameter.placements:
        gradient = gradient.redistribute(placements=parameter.placements)
    return None if gradient is None else local(gradient)


def plain(state: Any) -> Any:
    """The same state with this rank's parts instead of sharded tensors."""
    if isinstance(state, torch.Tensor):
        return local(state)
    if isinstance(state, dict):
        return {key: plain(value) for key, value in state.items()}
    if isinstance(state, list | tuple):
        return type(state)(plain(value) for value in state)
    return state


def model_state(mine: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
    """The parts of a state dictionary of a model, sharded as ours."""
    return {name: like(part, mine[name]) if name in mine else part for name, part in theirs.items()}


def optimizer_state(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> dict[str, Any]:
    """The parts of a state dictionary of an optimizer: what has its parameter's local shape is sharded as that is."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    held = {number: _sharded(parameters, number, values) for number, values in state.get("state", {}).items()}
    return {**state, "state": held}


def check_sendable(optimizer: torch.optim.Optimizer) -> None:
    """Raises TrainError where the optimizer holds sharded state of another shape than its parameter's: parts of that could
    not be put together again."""
    for parameter, values in optimizer.state.items():
        for name, value in values.items():
            if isinstance(value, DTensor) and value.shape != parameter.shape:
                raise TrainError(f"the optimizer's {name!r} is sharded in a way that cannot be sent to a peer")


def _sharded(parameters: list[torch.nn.Parameter], number: Any, values: Any) -> Any:
    if not isinstance(values, dict) or type(number) is not int or not 0 <= number < len(parameters):
        return values
    parameter = parameters[number]
    if not isinstance(parameter, DTensor):
        return values
    shape = local(parameter).shape

    def put(value: Any) -> Any:
        fits = isinstance(value, torch.Tensor) and value.dim() > 0 and value.shape == shape
        return like(value.to(local(parameter).device), parameter) if fits else value

    return {name: put(value) for name, value in values.items()}
