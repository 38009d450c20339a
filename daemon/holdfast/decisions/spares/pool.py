"""Spare pool: existing and wanted number of spares. Pure.

The rule p99: the smallest s with P[Poisson(N r T) <= s] >= 0.99, where N is the number of nodes, r the measured rate of faults that took a
node out and T the mean time until it served again. The number of nodes out at the same time is Poisson with that mean whatever the repairs'
times look like (a queue with a server for each). Where there is little history, published figures speak for it."""

from __future__ import annotations

import math
from datetime import timedelta
from statistics import NormalDist

from holdfast.model.background import WantedSpares
from holdfast.model.book import World
from holdfast.model.slurm.cluster import ClusterView

P99 = "p99"
QUANTILE = 0.99
RATE_PRIOR = 6.5e-3
"""Faults per node-day that stop a job: Meta's RSC-1, 6.5 per 1000 node-days; others are between 2.1 and 22."""
RATE_PRIOR_FAULTS = 1.0
"""The prior weighs as much as one fault seen (a gamma prior of shape 1, as the spread between nodes of LANL's systems: 0.5 to 1.8)."""
REFILL_PRIOR_S = 3600.0
"""Repair time if the provider replaces machines: HyperPod's published 36.8 to 41.7 min for each fault, rounded up."""
REFILL_PRIOR_BY_HAND_S = 24 * 3600.0
"""Repair time if people repair."""
REFILL_PRIOR_REPAIRS = 3.0
_DAY_S = 86400.0


def spare_pool(world: World, view: ClusterView) -> tuple[str, ...]:
    """Nodes in the reservation that Holdfast owns, in the order of their names."""
    reservation = view.reservations.get(world.policy.spare_reservation)
    return tuple(sorted(reservation.nodes)) if reservation is not None else ()


def kept(world: World, view: ClusterView) -> tuple[str, ...]:
    """The pool without what is promised to a job and about to leave."""
    promised = {r.spare for r in world.book.recoveries.values() if r.spare is not None and not r.final}
    return tuple(name for name in spare_pool(world, view) if name not in promised)


def wanted(world: World) -> WantedSpares:
    """Number of spares that the site wants, and why. The rule's number is as old as the background's reading."""
    asked = world.policy.spares.wanted
    if asked == "":
        return WantedSpares(None, ("no number is set: the pool gets back what was taken from it",))
    if asked != P99:
        return WantedSpares(int(asked), (f"spares.wanted = {asked}",))
    return world.background.by_rule or WantedSpares(None, ("the history has not been read yet",))


def by_rule(world: World, view: ClusterView) -> WantedSpares:
    """The rule p99 on the history at hand."""
    nodes = sum(1 for n in view.nodes.values() if n.gpu_count) or len(view.nodes)
    rate, about_rate = fault_rate(world, nodes)
    refill_s, about_refill = refill_time_s(world)
    out = nodes * rate * refill_s / _DAY_S
    number = poisson_quantile(out, QUANTILE)
    reasons = [
        about_rate,
        about_refill,
        f"{nodes} nodes: {out:.2f} out at the same time on average, at most {number} in 99 of 100 cases (Poisson)",
    ]
    least, most = world.policy.spares.at_least, math.ceil(nodes * world.policy.spares.at_most_share)
    bounded = max(least, min(number, max(most, least)))
    if bounded != number:
        bound = f"at_least = {least}" if bounded > number else f"at_most_share: {most} of {nodes} nodes"
        reasons.append(f"{bounded} instead, by spares.{bound}")
    return WantedSpares(bounded, tuple(reasons))


def fault_rate(world: World, nodes: int) -> tuple[float, str]:
    """Faults that took a node out, per node-day, with the prior's weight; and where that comes from."""
    back, window_s = world.background, world.policy.spares.rate_window_s
    begin = max(world.now - timedelta(seconds=window_s), back.since or world.now)
    days = max((world.now - begin).total_seconds(), 0.0) / _DAY_S
    seen = sum(1 for o in back.outages if o.out_at >= begin and o.of_incident)
    rate = (seen + RATE_PRIOR_FAULTS) / (nodes * days + RATE_PRIOR_FAULTS / RATE_PRIOR)
    text = (
        f"{seen} faults took a node out in {days:.1f} days of {nodes} nodes: with the prior of {RATE_PRIOR * 1000:g} "
        f"{rate * 1000:.2f} for 1000 node-days"
    )
    return rate, text


def refill_time_s(world: World) -> tuple[float, str]:
    """Mean time from a node's way out to its return, nodes that are still out included (right-censored); and where that comes from."""
    prior_s = REFILL_PRIOR_S if world.can.replace else REFILL_PRIOR_BY_HAND_S
    begin = world.now - timedelta(seconds=world.policy.spares.rate_window_s)
    total_s, repairs = prior_s * REFILL_PRIOR_REPAIRS, 0
    for outage in world.background.outages:
        end = outage.back_at or (None if outage.over else world.now)
        if outage.out_at >= begin and end is not None and not outage.by_others:
            total_s += max((end - outage.out_at).total_seconds(), 0.0)
            repairs += outage.back_at is not None
    mean_s = total_s / (REFILL_PRIOR_REPAIRS + repairs)
    text = f"a node is back after {mean_s / 3600:.2f} h on average ({repairs} repairs, and a prior of {prior_s / 3600:g} h)"
    return mean_s, text


def poisson_quantile(mean: float, share: float) -> int:
    """Smallest s with P[Poisson(mean) <= s] >= share. ``mean`` in 0 … 1e6, ``share`` below 1."""
    if mean > 500.0:  # exp(-mean) is too small to sum up from; the normal one is as good here
        return math.ceil(mean + NormalDist().inv_cdf(share) * math.sqrt(mean))
    term = math.exp(-mean)
    total, number = term, 0
    while total < share:
        number += 1
        term *= mean / number
        total += term
    return number
