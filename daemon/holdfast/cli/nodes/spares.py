"""Verbs that read nodes: all of them, one with its history, the spare pool."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import typer

from holdfast.api.client import ApiClient
from holdfast.cli.common import complete
from holdfast.cli.common.answers import read
from holdfast.cli.common.options import Json, Url
from holdfast.cli.common.show import agent_word, as_json, counted, line, moment, table
from holdfast.cli.views.reading import Wanted, all_nodes, hostlist, listed, roles_of
from holdfast.model.ids import abbreviated

if TYPE_CHECKING:
    from holdfast.api.answers.node_shapes import NodeStory, OutageShape, SparesShape
    from holdfast.api.answers.proposal_shapes import NodePolicyShape


def nodes(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NODES",
            help="One node, with its history; or a host list such as n[1-8]: only these.",
            autocompletion=complete.nodes,
        ),
    ] = None,
    url: Url = None,
    as_data: Json = False,
    bad: Annotated[
        bool,
        typer.Option(
            "--bad", help="Only what is wrong: out of service, silent, with an open incident, or put back unrepaired."
        ),
    ] = False,
    partition: Annotated[str | None, typer.Option("--partition", "-p", help="Only of this partition.")] = None,
) -> None:
    """Every node: Slurm's state, its agent, open incidents, and what holds Holdfast back; and how many are in service."""
    named = hostlist(name) if name is not None else ()
    if name is None or bad or partition or named != (name,):
        all_nodes(url, as_data, Wanted(named, partition, bad))
        return
    got = ApiClient(url).get(f"/v1/nodes/{quote(name, safe='')}")
    if as_data:
        as_json(got)
        return
    from holdfast.api.answers.node_shapes import NodeStory  # noqa: PLC0415

    story = read(NodeStory, got)
    for sentence in node_lines(story):
        line(sentence)
    rows = [[moment(o.out_at)[:19], _back(o), o.incident_id, o.instance_id, _what(o)] for o in story.outages]
    columns = ("OUT (UTC)", "BACK (UTC)", "INCIDENT", "MACHINE", "WHAT")
    read_at = f"as read at {moment(story.history_read_at)[:19]} UTC" if story.history_read_at else "not read yet"
    empty = f"no outage on record ({read_at})"
    listed(columns, rows, empty, ("MACHINE",), title=f"outages, {read_at}")
    line(f"every drain, machine, check and note: holdfast node history {story.node.name}")


def _back(outage: OutageShape) -> str:
    if outage.back_at is not None:
        return moment(outage.back_at)[:19]
    return "not on record" if outage.over else "still out"


def _what(outage: OutageShape) -> str:
    excused = " (not the node's doing)" if outage.excused else ""
    return abbreviated(outage.what) + excused + (f"; {outage.ended}" if outage.ended else "")


def node_lines(got: NodeStory) -> list[str]:
    node = got.node
    role = "".join(f", {word}" for word in roles_of(node))
    agents = ", ".join(dict.fromkeys(agent_word(a.status) for a in node.agents))
    lines = [f"{node.name}  {node.state or '?'}  {counted(node.gpus, 'GPU')}, agent {agents}{role}"]
    if got.instance_id:
        lines.append(f"machine {got.instance_id}")
    if node.why or node.reason:
        lines.append(abbreviated(node.why or node.reason))
    if node.policy is not None:
        lines.append(policy_line(node.policy))
    lines += [f"its agent refused the policy of checks: {a.checks_refused}" for a in node.agents if a.checks_refused]
    if got.checked_at:
        deep = f", deeply {moment(got.deep_at)[:19]}" if got.deep_at else ""
        lines.append(f"checked {moment(got.checked_at)[:19]}{deep} UTC: {got.check_note or 'OK'}")
    reasons = "".join(f"; {reason}" for reason in got.reasons)
    return [
        *lines,
        f"score {node.score}{reasons}" if got.history_read_at else "its history has not been read yet",
    ]


def policy_line(policy: NodePolicyShape) -> str:
    """What may be done to the node, and which setting says so."""
    sets = f"; node sets: {', '.join(policy.sets)}" if policy.sets else ""
    if policy.never_touch:
        return f"never touched ({policy.why}){sets}"
    asks = f"; asks before {', '.join(policy.asks)}" if policy.asks else ""
    rungs = f"; rungs {', '.join(policy.rungs) or 'none'}"
    return f"mode {policy.mode} ({policy.why}){asks}{rungs}{sets}"


def spares(url: Url = None, as_data: Json = False) -> None:
    """The spare pool: each spare, ready or not and why; how many are wanted, and why."""
    got = ApiClient(url).get("/v1/spares")
    if as_data:
        as_json(got)
        return
    from holdfast.api.answers.node_shapes import SparesShape  # noqa: PLC0415

    pool = read(SparesShape, got)
    for sentence in pool_lines(pool):
        line(sentence)
    columns = ("NODE", "READY", "CHECKED (UTC)", "DEEP (UTC)", "REASON")
    rows = [
        [s.node, "yes" if s.ready else "no", moment(s.checked_at)[:19], moment(s.deep_at)[:19], s.why]
        for s in pool.spares
    ]
    table("", columns, rows, "no spares")


def pool_lines(got: SparesShape) -> list[str]:
    lines = [f"reservation {got.reservation or '?'}: {counted(len(got.spares), 'spare')}, {got.ready} ready"]
    if got.wanted is not None:
        short = f", short since {moment(got.short_since)[:19]} UTC" if got.short_since else ""
        lines.append(f"{got.wanted} wanted{short}")
    return lines + [f"  {reason}" for reason in got.reasons]
