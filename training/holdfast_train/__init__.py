"""Elastic training: run an existing PyTorch loop as one of several replica groups that join and leave.

Importing this needs no torch; :class:`Session` and :class:`TokenFile` do. docs/elastic.md shows the few lines of a loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast_train.errors import RankLost, Refused, TrainError, TransferFailed, Unusable, install_hook
from holdfast_train.samples.batch import GlobalBatch
from holdfast_train.samples.lr import Rule, Scaling, WarmupCosine
from holdfast_train.samples.order import Order
from holdfast_train.samples.rng import seed_of
from holdfast_train.sizes import Sizes, parse_sizes

if TYPE_CHECKING:
    from holdfast_train.failure.restart import restartable
    from holdfast_train.samples.data import TokenFile
    from holdfast_train.saves.durable import DurableCheckpoints
    from holdfast_train.session import Attempt, Session

__all__ = [
    "Attempt",
    "DurableCheckpoints",
    "GlobalBatch",
    "Order",
    "RankLost",
    "Refused",
    "Rule",
    "Scaling",
    "Session",
    "Sizes",
    "TokenFile",
    "TrainError",
    "TransferFailed",
    "Unusable",
    "WarmupCosine",
    "parse_sizes",
    "restartable",
    "seed_of",
]


install_hook()


def __getattr__(name: str) -> Any:
    from holdfast_train.versions import check  # noqa: PLC0415 - nothing of torch before it is asked for

    if name in ("Session", "Attempt"):
        check()
        from holdfast_train import session  # noqa: PLC0415

        return getattr(session, name)
    if name == "restartable":
        check()
        from holdfast_train.failure.restart import restartable  # noqa: PLC0415

        return restartable
    if name == "DurableCheckpoints":
        check()
        from holdfast_train.saves.durable import DurableCheckpoints  # noqa: PLC0415

        return DurableCheckpoints
    if name == "TokenFile":
        check()
        from holdfast_train.samples.data import TokenFile  # noqa: PLC0415

        return TokenFile
    raise AttributeError(f"module 'holdfast_train' has no attribute {name!r}")
