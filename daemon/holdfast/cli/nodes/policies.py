"""Verbs about the policy of checks: what is in force and who says so, what a file would change, and what it would have done."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.api.client import ApiClient
from holdfast.cli.common import complete
from holdfast.cli.common.answers import read
from holdfast.cli.common.options import Json, Url
from holdfast.cli.common.show import as_json, counted, line, moment
from holdfast.cli.common.when import parse_when
from holdfast.cli.views.reading import listed
from holdfast.model.slurm.hostlist import compress

if TYPE_CHECKING:
    from holdfast.api.answers.policy_shapes import (
        PolicyChangeShape,
        PolicyShape,
        SaidShape,
        WhatIfFaultShape,
        WhatIfShape,
    )

_TABLES = ("profile", "mode", "propose", "repair", "nodes", "checks")
"""Tables of the file that are sent; the others may hold secrets and say nothing of checks."""
_FEW = 8
_DID = {
    "drained": "drained",
    "asked": "asked about",
    "recorded": "only recorded as to be drained",
    "watched": "only watched",
}
_SAID = {"observes": "only observes", "off": "off", "acts": "acts"}
PolicyNode = Annotated[
    str | None,
    typer.Argument(metavar="[NODE]", help="One node; none: all.", autocompletion=complete.nodes, show_default=False),
]
FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="A controller.toml.", exists=True, dir_okay=False)]


def show(node: PolicyNode = None, url: Url = None, as_data: Json = False) -> None:
    """The policy of checks in force: which checks act or only observe, thresholds, who says so, and which agents have another version."""
    got = ApiClient(url).get("/v1/policy", node=node)
    if as_data:
        as_json(got)
        return
    from holdfast.api.answers.policy_shapes import PolicyShape  # noqa: PLC0415

    shown = read(PolicyShape, got)
    for sentence in policy_lines(shown):
        line(sentence)
    columns, empty = ("NAME", "VALUE", "BY", "COUNTS"), "nothing is set: each check and threshold is at its default"
    listed(columns, [_said_row(each) for each in shown.said], empty, ())
    for sentence in agent_lines(shown.older, shown.refused, shown.never_off):
        line(sentence)


def diff(file: FileArgument, url: Url = None, as_data: Json = False) -> None:
    """What a controller.toml would change on which nodes, in checks, thresholds and modes, before it is in force. Changes nothing."""
    got = _asked(url, {"since": datetime.now(UTC).isoformat(), "tables": tables_of(file)})
    if as_data:
        as_json(got)
        return
    from holdfast.api.answers.policy_shapes import WhatIfShape  # noqa: PLC0415

    for sentence in change_lines(read(WhatIfShape, got).changes) or [f"{file} changes nothing on any node"]:
        line(sentence)


def what_if(
    since: Annotated[str, typer.Option("--since", help="How far to look back: 30d, monday, ISO 8601.")] = "30d",
    file: Annotated[
        Path | None,
        typer.Option("--file", help="With the checks and nodes of this controller.toml.", exists=True, dir_okay=False),
    ] = None,
    act: Annotated[list[str] | None, typer.Option("--act", help="This check would act; '*': all. Repeatable.")] = None,
    observe: Annotated[
        list[str] | None, typer.Option("--observe", help="This check would only observe. Repeatable.")
    ] = None,
    off: Annotated[list[str] | None, typer.Option("--off", help="This check would be off. Repeatable.")] = None,
    url: Url = None,
    as_data: Json = False,
) -> None:
    """Which nodes another policy would have drained that were not, and the reverse: recorded findings are judged again. Without a file and
    options: if every check acted. Changes nothing."""
    body: dict[str, object] = {"since": parse_when(since, datetime.now(UTC)).isoformat()}
    body |= {"act_on": act or [], "observe_only": observe or [], "checks_off": off or []}
    got = _asked(url, body | ({"tables": tables_of(file)} if file is not None else {}))
    if as_data:
        as_json(got)
        return
    from holdfast.api.answers.policy_shapes import WhatIfShape  # noqa: PLC0415

    shown = read(WhatIfShape, got)
    columns = ("NODE", "SINCE (UTC)", "CHECK", "WORST", "REMEDY", "TIMES", "WAS", "WOULD BE", "REASON")
    listed(
        columns, [_fault_row(each) for each in shown.faults], "it would have made no difference", ("REMEDY", "TIMES")
    )
    for sentence in what_if_lines(shown):
        line(sentence)


def tables_of(file: Path) -> dict[str, object]:
    """What the file says of checks and nodes. Raises ConfigError."""
    from holdfast.config import strict  # noqa: PLC0415

    table = strict.load(file)
    return {name: table[name] for name in _TABLES if name in table}


def _asked(url: str | None, body: Mapping[str, object]) -> Any:
    return ApiClient(url).post("/v1/checks/what-if", body)


def policy_lines(got: PolicyShape) -> list[str]:
    """Lines above the table."""
    lists = f"act_on: {', '.join(got.act_on) or 'none'}"
    if got.checks_off:
        lists += f"; checks_off: {', '.join(got.checks_off)}"
    if got.node is None:
        return [f"all nodes, version {got.version}; {lists}"]
    mode = "" if got.policy is None else f"; mode {got.policy.mode}"
    sets = "" if got.policy is None or not got.policy.sets else f"; node sets: {', '.join(got.policy.sets)}"
    return [f"{got.node}, version {got.version}{mode}{sets}; {lists}", _agent_line(got)]


def _agent_line(got: PolicyShape) -> str:
    if got.agent_version is None:
        return "its agent does not say which version it goes by: none reports, or it is of an earlier release"
    if got.agent_version == got.version:
        return "its agent goes by this version"
    return f"its agent goes by version {got.agent_version or 'none'}; it gets this one with its next heartbeat"


def agent_lines(older: Collection[str], refused: Mapping[str, str], never_off: Collection[str] = ()) -> list[str]:
    """Agents that do not go by the policy of their node."""
    lines = [f"{counted(len(older), 'node')} with an older policy: {named(older)}"] if older else []
    if never_off:
        lines.append(
            f"an older agent on {named(never_off)} cannot switch checks off: what they find there counts as a warning; upgrade it"
        )
    by_reason: dict[str, list[str]] = defaultdict(list)
    for node, why in refused.items():
        by_reason[why].append(node)
    return lines + [
        f"refused on {named(nodes)}: {why}; the policy before holds there" for why, nodes in sorted(by_reason.items())
    ]


def change_lines(changes: Iterable[PolicyChangeShape]) -> list[str]:
    """What changes, each with the nodes on which it does."""
    nodes: dict[str, list[str]] = defaultdict(list)
    for change in changes:
        for each in change.lines:
            nodes[each].append(change.node)
    return [f"{compress(on)}: {what}" for what, on in nodes.items()]


def what_if_lines(got: WhatIfShape) -> list[str]:
    """The answer in a sentence for each kind, and what it leaves out."""
    kinds: dict[tuple[str, str], set[str]] = defaultdict(set)
    for fault in got.faults:
        kinds[fault.before, fault.after].add(fault.node)
    lines = [
        f"{compress(nodes)}: would have been {_DID.get(after, after)} instead of {_DID.get(before, before)}"
        for (before, after), nodes in sorted(kinds.items())
    ]
    span = f"{counted(got.replayed, 'finding')} since {moment(got.since)[:16]} UTC replayed"
    lines.append(span + ("; older ones of the span were not read: ask for a shorter one" if got.more else ""))
    return lines + got.notes


def named(nodes: Iterable[str]) -> str:
    """The first few of them."""
    names = list(nodes)
    return ", ".join(names[:_FEW]) + (f" and {len(names) - _FEW} more" if len(names) > _FEW else "")


def _said_row(said: SaidShape) -> list[object]:
    value = _SAID.get(said.what, said.what or "only observes") if said.value is None else f"{said.value:g}"
    return [said.name, value, said.by, "yes" if said.counts else "no: another one is milder"]


def _fault_row(fault: WhatIfFaultShape) -> list[object]:
    check = f"{fault.check} {fault.code}".strip()
    return [
        *(fault.node, moment(fault.at)[:16], check, fault.severity, fault.remedy, fault.times),
        *(fault.before, fault.after, fault.why),
    ]
