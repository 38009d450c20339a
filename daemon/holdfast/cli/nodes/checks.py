"""Which health checks act on this cluster."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import typer

from holdfast.api.client import ApiClient
from holdfast.cli.common.answers import read
from holdfast.cli.common.options import Json, Url
from holdfast.cli.common.show import as_json, counted, line
from holdfast.cli.nodes.policies import agent_lines, named
from holdfast.cli.views.reading import listed

if TYPE_CHECKING:
    from holdfast.api.check_policy.checks import CheckShape, ChecksShape, OtherNodeShape


def checks(context: typer.Context, url: Url = None, as_data: Json = False) -> None:
    """Every health check: whether it acts (nodes are drained for it) or only observes, and the nodes on which that is otherwise."""
    if context.invoked_subcommand is not None:
        return
    got = ApiClient(url).get("/v1/checks")
    if as_data:
        as_json(got)
        return
    from holdfast.api.check_policy.checks import ChecksShape  # noqa: PLC0415

    shown = read(ChecksShape, got)
    columns = ("CHECK", "MODE", "WORST", "REMEDY", "REASON", "TITLE")
    rows = [(c.id, _mode(c), c.severity, c.remedy, _why(c, shown), c.title) for c in shown.checks]
    listed(columns, rows, "no checks", ("REMEDY", "TITLE"))
    for sentence in check_lines(shown):
        line(sentence)


def _mode(check: CheckShape) -> str:
    return "off" if check.off else "acts" if check.acts else "observes"


def _why(check: CheckShape, got: ChecksShape) -> str:
    if check.off:
        return "checks_off"
    if check.id in got.observe_only:
        return "observe_only"
    if check.proven:
        return "proven"
    return "act_on" if check.acts else "new"


def check_lines(got: ChecksShape) -> list[str]:
    """Lines below the table."""
    acting = sum(c.acts for c in got.checks)
    lines = [
        f"{counted(acting, 'check')} of {len(got.checks)} act. To let another one drain nodes, name it in [checks] act_on of "
        "controller.toml and restart the controller; the agents get it with their next heartbeat"
    ]
    groups: dict[str, list[str]] = defaultdict(list)
    for other in got.others:
        groups[_otherwise(other)].append(other.node)
    lines += [f"otherwise on {named(nodes)}: {how}" for how, nodes in sorted(groups.items())]
    return lines + agent_lines(got.older, got.refused, got.never_off)


def _otherwise(other: OtherNodeShape) -> str:
    if not other.says:
        return "an older agent, which only reads its own agent.toml; upgrade it"
    lists = f"act_on = [{', '.join(other.act_on)}], observe_only = [{', '.join(other.observe_only)}]"
    return f"{lists} (its agent.toml, or it has not received the change yet)"
