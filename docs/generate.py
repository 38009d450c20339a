"""Writes the pages of docs/reference/ that come from the code (``PAGES``): ``python docs/generate.py``. A test compares them."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import itertools
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import typer
from prometheus_client.registry import Collector

import package_graph
from holdfast.api.app import TAGS, create_app
from holdfast.api.counters import ApiCounters
from holdfast.api.deps import ApiDeps, ApiSettings
from holdfast.api.figures.gauges import ClusterGauges, ProcessGauges
from holdfast.api.figures.record_totals import RecordTotals
from holdfast.api.transport.connections import Bounds, Connections
from holdfast.cli.app import EPILOG, app
from holdfast.clock import SystemClock
from holdfast.config import drain_rules
from holdfast.config.example import SettingRow, rows
from holdfast.config.node_sets import NODES
from holdfast.config.profiles import PROFILES
from holdfast.controller.keeping.steps_untaken import UntakenWatch
from holdfast.controller.observing.agents import AgentRegistry
from holdfast.controller.orders import OrderHub
from holdfast.decisions.parts import Certificate
from holdfast.decisions.turn import STAGES
from holdfast.metrics.tally import Tally
from holdfast.metrics.timings import Phase
from holdfast.model.actions.action import ACTION_TYPES
from holdfast.model.actions.endings import ENDINGS, EndingProof
from holdfast.model.actions.restraints import WAYS, Restraint
from holdfast.model.event import EventKind
from holdfast.model.incidents.incident import (
    TRANSITIONS,
    IncidentKind,
    IncidentState,
    MovedBy,
    RecoveryPhase,
    Transition,
)
from holdfast.model.parts import DiskRoom, NotifierState, ProcessSeen
from holdfast.model.policies.drain_rules import DrainRule
from holdfast.model.policies.policy import Mode, Policy
from holdfast_checks import coverage, reference
from holdfast_checks.cli import page
from holdfast_checks.settings.option import REQUIRED, declaration_of, default_of
from holdfast_checks.settings.schema import toml
from holdfast_checks.words import declared

REFERENCE = Path(__file__).parent / "reference"
NOTE = "<!-- Written by docs/generate.py from the code; do not edit. -->\n"


def docstrings(kind: type[Any]) -> Mapping[str, str]:
    """Strings that follow an enum's members in the class body, as documentation tools read them."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    docs: dict[str, str] = {}
    for here, after in itertools.pairwise(body):
        name = _assigned(here)
        if name and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            docs[name] = str(after.value.value)
    return docs


def _assigned(node: ast.stmt) -> str:
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return node.target.id
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    return ""


def configuration() -> str:
    """``controller.toml``, section by section."""
    lines = ["# controller.toml", "", NOTE]
    lines += [
        "`holdfast config example` prints the file, `holdfast config check` reads one. An unknown key is an error.",
        "",
    ]
    section: str | None = None
    for row in rows():
        if row.section != section:
            section = row.section
            lines += [
                "",
                (f"## `[[{section}]]`" if section == NODES else f"## `[{section}]`") if section else "## At the top",
                "",
                "| key | default | meaning |",
                "|---|---|---|",
            ]
        lines.append(f"| `{row.key}` | {_default(row)} | {_cell(row.doc)} |")
    lines += ["", f"## `[[{drain_rules.KEY}]]`", "", "One table for each rule; none by default.", ""]
    lines += ["| key | default | meaning |", "|---|---|---|"]
    lines += [_rule_row(each) for each in dataclasses.fields(DrainRule)]
    for name, sections in PROFILES.items():
        lines += ["", f'## `profile = "{name}"`', "", "| key | value |", "|---|---|"]
        lines += [
            f"| `{section}.{key}` | `{value}` |" for section, keys in sections.items() for key, value in keys.items()
        ]
    return "\n".join(lines) + "\n"


def _rule_row(field: dataclasses.Field[Any]) -> str:
    default = default_of(field)
    shown = "" if default in (REQUIRED, "") else f"`{toml(default)}`"
    return f"| `{field.name}` | {shown} | {_cell(declaration_of(field).doc)} |"


def _default(row: SettingRow) -> str:
    shown = toml(row.default)
    return "" if shown == '""' else f"`{shown}`"


def api() -> str:
    """Every route with its parameters and answers."""
    described = create_app(_no_deps()).openapi()
    lines = ["# REST API", "", NOTE]
    lines += [f"{described['info']['description']} `GET /openapi.json` (any token) has all shapes and examples.", ""]
    for tag in TAGS:
        lines += [f"## {tag['name']}", "", str(tag["description"]), ""]
        for path, methods in described["paths"].items():
            for method, route in methods.items():
                if tag["name"] in route["tags"]:
                    lines += _route(method, path, route)
    return "\n".join(lines)


def _route(method: str, path: str, route: dict[str, Any]) -> Iterator[str]:
    yield f"### `{method.upper()} {path}`"
    yield ""
    yield route["description"]
    yield ""
    parameters = route.get("parameters", [])
    if parameters:
        yield "| parameter | in | type | meaning |"
        yield "|---|---|---|---|"
        for p in parameters:
            needed = ", required" if p.get("required") else ""
            yield f"| `{p['name']}` | {p['in']}{needed} | {_type(p['schema'])} | {_cell(p.get('description', ''))} |"
        yield ""
    yield f"Answers: {', '.join(sorted(route['responses']))}."
    yield ""


def _type(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"] if one.get("type") != "null")
    if "$ref" in schema:
        return str(schema["$ref"].rsplit("/", 1)[1])
    name = str(schema.get("format") or schema.get("type", ""))
    return f"{name} of {_type(schema['items'])}" if "items" in schema else name


def cli() -> str:
    """Every verb with its options."""
    lines = [
        "# holdfast",
        "",
        NOTE,
        EPILOG,
        "",
        "Environment: `HOLDFAST_URL`, `HOLDFAST_TOKEN`, `HOLDFAST_TOKEN_FILE` (else",
    ]
    lines += ["`~/.config/holdfast/token`), `HOLDFAST_CA_FILE`, `HOLDFAST_CONFIG`, `HOLDFAST_PRACTICE_DIR`.", ""]
    lines += ["Shell completion: `holdfast --install-completion`.", ""]
    root = typer.main.get_command(app)
    for path, command in _commands(root, "holdfast"):
        arguments = [p for p in command.params if p.param_type_name == "argument"]
        words = [p.name.upper() if p.required else f"[{p.name.upper()}]" for p in arguments]
        lines += [f"## `{' '.join([path, *words])}`", ""]
        lines += [inspect.cleandoc(command.help or ""), ""]
        shown = [p for p in command.params if p.name != "help"]
        if shown:
            lines += ["| option | meaning |", "|---|---|"]
            lines += [f"| `{_names(p)}` | {_cell(str(getattr(p, 'help', '') or ''))} |" for p in shown]
            lines.append("")
    return "\n".join(lines)


def _commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    children = getattr(command, "commands", {})
    if not children or command.invoke_without_command:
        yield path, command
    for name, child in sorted(children.items()):
        yield from _commands(child, f"{path} {name}")


def _names(parameter: Any) -> str:
    names = [*parameter.opts, *parameter.secondary_opts]
    return ", ".join(names) if parameter.param_type_name == "option" else str(parameter.name.upper())


def metrics() -> str:
    """The phases and the Prometheus names."""
    lines = ["# Metrics", "", NOTE, "Definitions of MTTD, MTTR and losses: [../metrics.md](../metrics.md).", ""]
    lines += ["## Phases (`holdfast metrics`, `GET /v1/metrics`)", "", "| phase | from → to |", "|---|---|"]
    lines += [f"| `{phase.value}` | {_cell(docstrings(Phase)[phase.name])} |" for phase in Phase]
    lines += ["", "## Prometheus (`GET /metrics`)", ""]
    lines += [
        "Every sample has a label `cluster`, too. Scrape settings, rules and the dashboard: [../metrics.md](../metrics.md).",
        "",
    ]
    deps, counters = _no_deps(), ApiCounters()
    lines += _families("Of each controller's process", [counters.registry, ProcessGauges(deps)], counters)
    lines += _families("Of the cluster: shown by the controller that leads", [ClusterGauges(deps)], counters)
    lines += _families("Of the record of events: shown by the controller that leads", [RecordTotals(deps)], counters)
    return "\n".join(lines)


def _families(title: str, collectors: Sequence[Collector], counters: ApiCounters) -> list[str]:
    lines = [f"### {title}", "", "| name | kind | labels | meaning |", "|---|---|---|---|"]
    for metric in (m for collector in collectors for m in collector.collect()):
        own = getattr(counters, _attribute(metric.name), None)  # of one that has no sample in this process
        labels = sorted(getattr(own, "_labelnames", None) or getattr(metric, "_labelnames", ()))
        name = metric.name + {"counter": "_total", "info": "_info"}.get(metric.type, "")
        lines.append(f"| `{name}` | {metric.type} | {', '.join(labels)} | {_cell(metric.documentation)} |")
    return [*lines, ""]


def events() -> str:
    """Every kind of event."""
    lines = ["# Events", "", NOTE]
    lines += [
        "The record is append-only; every timing and cost is computed from it ([../metrics.md](../metrics.md)). An event has `id`, `at`,",
        "`kind`, `incident_id`, `node`, `job`, a `text` of one line and a `detail`. `GET /v1/events` reads them in order.",
        "",
        "| kind | meaning |",
        "|---|---|",
    ]
    lines += [f"| `{kind.value}` | {_cell(docstrings(EventKind)[kind.name])} |" for kind in EventKind]
    lines += [
        "",
        "## Actions",
        "",
        "An action's event names its `kind` in `detail`; an order to an agent also its `verb`.",
        "",
    ]
    lines += ["| kind | what is done |", "|---|---|"]
    lines += [f"| `{name}` | {_cell(_first_sentence(kind))} |" for name, kind in ACTION_TYPES.items()]
    return "\n".join(lines) + "\n"


def _first_sentence(kind: type[Any]) -> str:
    text = inspect.cleandoc(kind.__doc__ or "")
    return "" if text.startswith(f"{kind.__name__}(") else text  # a dataclass writes its own where nobody did


def lifecycle() -> str:
    """The states of an incident and of a job's recovery."""
    lines = ["# Lifecycle of an incident, and of a job's recovery", "", NOTE]
    lines += [
        "Only the steps drawn here are possible: each is checked against this table before it is stored. Each one is an event that names",
        "both states (`from` and `to` in its detail; the first has no `from`), so that the events of an incident show all of its states.",
        "An incident begins with `incident.opened`, or as `suspected` with `incident.state`: if the suspicion holds, a step to `open`",
        "follows, and `incident.opened` without states marks the detection; if it does not, `incident.closed`. Events of release",
        "0.1.0a1 name no states when they open an incident.",
        "",
    ]
    lines += ["```mermaid", "stateDiagram-v2", *(_drawn(t) for t in TRANSITIONS), "  closed --> [*]", "```", ""]
    lines += ["| state | meaning |", "|---|---|"]
    lines += [f"| `{state.value}` | {_cell(docstrings(IncidentState)[state.name])} |" for state in IncidentState]
    lines += ["", "| from | to | by | when |", "|---|---|---|---|"]
    lines += [f"| {_before(t)} | `{t.after.value}` | {t.by.value} | {_cell(t.when)} |" for t in TRANSITIONS]
    lines += [
        "",
        "## Kinds",
        "",
        "Set when an incident is opened, and never changed.",
        "",
        "| kind | meaning |",
        "|---|---|",
    ]
    lines += [f"| `{kind.value}` | {_cell(docstrings(IncidentKind)[kind.name])} |" for kind in IncidentKind]
    lines += [
        "",
        "## Recovery of a job",
        "",
        "One for each affected run of a job; it runs in parallel to its incident.",
        "",
    ]
    lines += ["| phase | meaning |", "|---|---|"]
    lines += [f"| `{phase.value}` | {_cell(docstrings(RecoveryPhase)[phase.name])} |" for phase in RecoveryPhase]
    return "\n".join(lines) + "\n"


def _drawn(step: Transition) -> str:
    before = step.before.value if step.before is not None else "[*]"
    return f"  {before} --> {step.after.value}" + (" : operator" if step.by is MovedBy.OPERATOR else "")


def _before(step: Transition) -> str:
    return f"`{step.before.value}`" if step.before is not None else "(new)"


def _attribute(name: str) -> str:
    return name.removeprefix("holdfast_").removeprefix("items_")


def _no_deps() -> ApiDeps:
    """Enough for a description; no request is ever served."""
    clock = SystemClock()
    parts = {
        "store": None,
        "clock": clock,
        "agents": AgentRegistry(),
        "orders": OrderHub(clock.monotonic_s),
        "settings": ApiSettings(),
        "world": lambda: None,
        "leader": lambda: True,
        "aside": lambda: (),
        "loop_turned_at": clock.monotonic_s,
        "mode": Mode.ACT,
        "policy": Policy(),
        "untaken": UntakenWatch(),
        "trouble": lambda: None,
        "stage_times": lambda: dict.fromkeys(STAGES, 0.0),
        "committed_at": clock.monotonic_s,
        "disk": lambda: DiskRoom(0, 0, 0),
        "led_by": lambda: None,
        "actor": lambda: ProcessSeen(0.0),
        "slurm_seen_at": lambda: None,
        "slurm_error": lambda: None,
        "notifier": NotifierState,
        "totals": Tally,
        "certificate": lambda: Certificate(clock.now()),
        "connections": Connections(Bounds(0), clock.monotonic_s),
    }
    return cast(ApiDeps, SimpleNamespace(**parts))


def _cell(text: str) -> str:
    return " ".join(text.replace("``", "`").replace("|", "\\|").split())


def unknown_words() -> str:
    """What each enum that is stored or sent reads a word of another release as."""
    lines = ["# Words of other releases", "", NOTE]
    lines += [
        "A word that this release does not know, in the store or in a message, is read as the one below ([../upgrade.md](../upgrade.md)).",
        "",
        "| what | words | read as | what follows |",
        "|---|---|---|---|",
    ]
    _load_declarations()
    for kind, safe in sorted(declared().items(), key=lambda one: one[0].__name__):
        words = ", ".join(f"`{word.value}`" for word in kind) if len(kind) <= _FEW else f"{len(kind)} words"
        lines.append(
            f"| {_cell(_named(kind))} | {words} | {f'`{safe.word}`' if safe.word else '—'} | {_cell(safe.effect)} |"
        )
    return "\n".join(lines) + "\n"


def _load_declarations() -> None:
    """Import each module that declares a safe word: what is declared depends on what is loaded."""
    for root in (REFERENCE.parents[1] / "daemon", REFERENCE.parents[1] / "healthchecks"):
        for file in sorted(root.rglob("*.py")):
            if "@unknown_reads_as(" in file.read_text(encoding="utf-8"):
                importlib.import_module(".".join(file.relative_to(root).with_suffix("").parts))


_FEW = 12


def _named(kind: type[StrEnum]) -> str:
    """The class's name in words: ``IncidentState`` is an incident state."""
    return re.sub(r"(?<!^)([A-Z])", lambda m: f" {m[1].lower()}", kind.__name__)


PAGES = {
    "configuration.md": configuration,
    "api.md": api,
    "cli.md": cli,
    "metrics.md": metrics,
    "events.md": events,
    "lifecycle.md": lifecycle,
    "packages.md": package_graph.render,
    "checks.md": reference.render,
    "coverage.md": coverage.render,
    "holdfast-checks.md": page.render,
    "unknown-words.md": unknown_words,
}


def endings() -> str:
    """Everything that can end, stop or reboot something, and what proves that it hits the right one."""
    lines = ["| step | carried out by | proofs |", "|---|---|---|"]
    lines += [
        f"| `{each.step}` | {each.carried_out} | {', '.join(f'`{proof.value}`' for proof in each.proofs)} |"
        for each in ENDINGS
    ]
    lines += ["", "| proof | what is shown right before the step |", "|---|---|"]
    lines += [f"| `{proof.value}` | {_cell(docstrings(EndingProof)[proof.name])} |" for proof in EndingProof]
    return "\n".join(lines) + "\n"


def restraints() -> str:
    """Every way by which something is done, and what holds it back."""
    names = {each: f"`{each.value}`" for each in Restraint}
    lines = ["| way | what it does | held by | where that is looked at |", "|---|---|---|---|"]
    for way in WAYS:
        by = "all six" if way.held_by == set(Restraint) else ", ".join(n for e, n in names.items() if e in way.held_by)
        lines.append(f"| {way.name} | {way.what} | {by or 'nothing to hold'} | {way.asked} |")
    lines += ["", "| held by | means |", "|---|---|"]
    lines += [f"| {name} | {_cell(docstrings(Restraint)[each.name])} |" for each, name in names.items()]
    return "\n".join(lines) + "\n"


PARTS = {"safety.md": {"endings": endings, "restraints": restraints}}
"""Pages of docs/ of which only the part between two marks comes from the code."""


def with_parts(text: str, parts: Mapping[str, Callable[[], str]]) -> str:
    """The page with its generated parts as they are now. Raises ValueError for a mark that it lacks."""
    for name, write in parts.items():
        begin, end = f"<!-- generated: {name} (docs/generate.py) -->\n", f"<!-- end: {name} -->"
        before, found, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        if not found or not closed:
            raise ValueError(f"the page has no marks for the part {name!r}")
        text = f"{before}{begin}\n{write()}\n{end}{after}"
    return text


def main() -> int:
    for name, parts in PARTS.items():
        page = REFERENCE.parent / name
        page.write_text(with_parts(page.read_text(encoding="utf-8"), parts), encoding="utf-8")
        sys.stdout.write(f"wrote {page}\n")
    for name, write in PAGES.items():
        (REFERENCE / name).write_text(write(), encoding="utf-8")
        sys.stdout.write(f"wrote {REFERENCE / name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
