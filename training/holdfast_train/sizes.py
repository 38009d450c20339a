"""How many replica groups a job may have; the grammar is the daemon's (``holdfast.model.elastic_jobs.sizes``)."""

from __future__ import annotations

from holdfast.model.elastic_jobs import sizes
from holdfast.model.elastic_jobs.sizes import Sizes
from holdfast_train.errors import Unusable

__all__ = ["Sizes", "parse_sizes"]


def parse_sizes(text: str) -> Sizes:
    """``min:max``, ``min:max:step`` or ``min:max:size,size,…``; both ends are always legal. Raises Unusable."""
    try:
        return sizes.parse_sizes(text)
    except sizes.BadSizes as error:
        raise Unusable(str(error)) from error
