"""Interval of durable checkpoints where peers heal any loss except that of all groups. Pure.

With live peers a file is needed only when *all* groups are lost at once. That happens in two ways, and their rates add up:

    λ_all = c·N·r  +  n·λ·(λ·T)^(n-1)        λ = (1-c)·k·r,  N = n·k

n groups of k nodes; r: failures of a node per second, all causes; c: share of failures that take all groups (software, a
shared switch or file system); T: time until a lost group is healed. The second term is the frequency at which n components,
each repaired separately, are all down (the last one fails while the n-1 others are down, each a share λT of the time; for two
it is the mean time to data loss of a mirrored pair of disks, MTTF²/2·MTTR: Patterson, Gibson, Katz, "A case for redundant arrays
of inexpensive disks", SIGMOD 1988). A single group: λ_all = k·r. The interval is Daly's (J. T. Daly, "A higher order estimate
of the optimum checkpoint interval for restart dumps", FGCS 22, 2006), Young's √(2wM) with further terms.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from holdfast_train.errors import Unusable

NODE_FAILURES_PER_DAY = 6.5e-3
"""r: Meta's RSC-1, 16,000 A100s over 11 months, 6.5 failures per 1,000 node-days: the worse of its two clusters."""
COMMON_SHARE = 0.13
"""c: software was 54 of 419 unexpected interruptions of Llama 3's 54 days; the part that takes all groups is not known, so all counts."""
HEAL_S = 600.0
"""T: time until Slurm has restarted a lost group and its peers have healed it; a generous estimate."""
_DAY_S = 86_400.0


def mtbf_of_all_s(
    groups: int,
    nodes_per_group: int = 1,
    *,
    node_failures_per_day: float = NODE_FAILURES_PER_DAY,
    common_share: float = COMMON_SHARE,
    heal_s: float = HEAL_S,
) -> float:
    """Mean time between losses of all groups at once, by the formula above."""
    rate = node_failures_per_day / _DAY_S
    own = (1 - common_share) * nodes_per_group * rate
    together = common_share * groups * nodes_per_group * rate
    return 1 / (together + groups * own * min(1.0, own * heal_s) ** (groups - 1))


def daly_s(cost_s: float, mtbf_s: float) -> float:
    """The interval between the end of one save and the start of the next that loses least, for this cost of a save."""
    if cost_s >= 2 * mtbf_s:
        return mtbf_s
    half = cost_s / (2 * mtbf_s)
    return math.sqrt(2 * cost_s * mtbf_s) * (1 + math.sqrt(half) / 3 + half / 9) - cost_s


def interval_s(cost_s: float, took_s: float, mtbf_s: float, least_s: float, most_s: float) -> float:
    """Daly's interval within bounds, and long enough that a save, which runs in the background, ends before the next.

    ``cost_s``: time that the loop lost to a save. ``took_s``: time until its files were complete."""
    return max(min(max(daly_s(cost_s, mtbf_s), least_s), most_s), 2 * took_s)


def nodes_from_env(env: Mapping[str, str]) -> int:
    """Nodes of a group; 1 where Slurm does not set it."""
    text = env.get("SLURM_JOB_NUM_NODES", "")
    return int(text) if text.isascii() and text.isdigit() and 0 < len(text) < 7 and int(text) else 1


def mtbf_from_env(env: Mapping[str, str]) -> float | None:
    """``HOLDFAST_MTBF_S``; None: it is not set. Raises Unusable."""
    text = env.get("HOLDFAST_MTBF_S", "")
    if not text:
        return None
    try:
        return float(text)
    except ValueError as error:
        raise Unusable(f"HOLDFAST_MTBF_S={text[:80]!r} is no number of seconds") from error
