"""Best time between two checkpoints. Pure. Times in hours.

Sources: J. W. Young, "A first order approximation to the optimum checkpoint interval" (CACM 17, 1974); J. T. Daly, "A higher order
estimate of the optimum checkpoint interval for restart dumps" (FGCS 22, 2006)."""

from __future__ import annotations

import math


def young_h(cost_h: float, mtbf_h: float) -> float:
    """sqrt(2 w M): where the cost of saves and the lost work, both to first order, are least together."""
    return math.sqrt(2 * cost_h * mtbf_h)


def daly_h(cost_h: float, mtbf_h: float) -> float:
    """sqrt(2 w M) [1 + sqrt(w / 2M) / 3 + (w / 2M) / 9] - w while w < 2M, else M."""
    if cost_h >= 2 * mtbf_h:
        return mtbf_h
    part = cost_h / (2 * mtbf_h)
    return math.sqrt(2 * cost_h * mtbf_h) * (1 + math.sqrt(part) / 3 + part / 9) - cost_h


def best_h(cost_h: float, mtbf_h: float) -> float:
    """The minimum of Daly's complete model, (e^((D+w)/M) - 1) / D, whatever the downtime: (1 - D/M) e^((D+w)/M) = 1, by bisection on its
    logarithm."""
    low, high = 0.0, 1.0  # D / M; the left side falls from e^(w/M) to 0
    for _ in range(80):
        middle = (low + high) / 2
        if middle < 1 and math.log1p(-middle) + middle + cost_h / mtbf_h > 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2 * mtbf_h
