"""Which curves belong to which tables. Pure."""

from __future__ import annotations

from holdfast.planning import hyperpod_post, nodes_out, run_cost, site_plan
from holdfast.planning.curves import Curve, svg
from holdfast.planning.nodes_out import NodesOut, SpareMethod
from holdfast.planning.plan_table import percent
from holdfast.planning.site_plan import PlanInputs


def of_post() -> str:
    """Share of the training time removed by the cluster's size, for the post's rates and both downtimes."""
    curves = [
        Curve(f"{percent(rate)}, {name}", tuple((n, _removed(n * rate, down)) for n in hyperpod_post.SIZES), pair)
        for pair, rate in enumerate(hyperpod_post.SHARE_RATES)
        for name, down in (("HyperPod", hyperpod_post.WITH_HYPERPOD), ("Holdfast", hyperpod_post.WITH_HOLDFAST))
    ]
    return svg("Training time removed, against 280 min a failure", "instances", "%", curves)


def _removed(cluster_rate: float, down: run_cost.Downtime) -> float:
    without, with_it = (run_cost.post_slowdown(cluster_rate, d.hours) for d in (hyperpod_post.WITHOUT, down))
    return 100 * run_cost.share_removed(without, with_it)


def of_site(inputs: PlanInputs) -> str:
    """Share of the time lost by the cluster's size; a single size is drawn from a quarter to four times it."""
    sizes = inputs.sizes if len(inputs.sizes) > 1 else tuple(max(inputs.sizes[0] * k // 4, 1) for k in (1, 2, 4, 8, 16))
    curves: list[Curve] = []
    for pair, rate in enumerate(inputs.rates_per_hour):
        found = [(n, site_plan.compare(inputs, n, rate)) for n in sizes]
        for name, slow in (("without", [c.without for _, c in found]), ("with", [c.with_it for _, c in found])):
            points = tuple((n, 100 * run_cost.share_lost(s)) for (n, _), s in zip(found, slow, strict=True))
            curves.append(Curve(f"{percent(rate)} {name}", points, pair))
    return svg("Training time lost", "nodes", "%", curves)


def of_nodes_out(out: NodesOut) -> str:
    """Share of the time for which more nodes are out than there are spares, by each method."""
    most = max(len(out.shares), 2)
    curves = [
        Curve(method.value, tuple((n, 100 * (1 - nodes_out.at_most(out, method, n))) for n in range(1, most + 1)))
        for method in SpareMethod
    ]
    return svg("More nodes out than spares", "spares", "% of the time", curves)
