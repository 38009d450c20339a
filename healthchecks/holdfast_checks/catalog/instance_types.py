"""How many GPUs and EFA devices an EC2 instance type has (``instance_types.json``). Types that are not there: unknown."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class InstanceType:
    """One row of the table."""

    name: str
    """As EC2 spells it: ``p5.48xlarge``."""
    gpu: str
    """The GPU's name in EC2's words: ``H100``."""
    gpus: int
    efa: int
    """EFA interfaces that can be attached at most; a launch may have asked for fewer, so fewer is not yet a fault."""
    nvlinks: int = 0
    """Active NVLinks of each GPU; 0: none, or unknown."""


def lookup(name: str) -> InstanceType | None:
    """The row of a type (``ml.`` of SageMaker in front is passed over); None: not in the table, so nothing is expected."""
    return table().get(name.strip().removeprefix("ml."))


@cache
def table() -> dict[str, InstanceType]:
    """All rows by name."""
    text = files("holdfast_checks.catalog").joinpath("instance_types.json").read_text(encoding="utf-8")
    rows = json.loads(text)["types"]
    return {
        row["type"]: InstanceType(
            row["type"], row["gpu"], int(row["gpus"]), int(row["efa"]), nvlinks=int(row.get("nvlinks", 0))
        )
        for row in rows
    }
