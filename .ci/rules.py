"""Rules of this project that no off-the-shelf linter has: ``python .ci/rules.py``, part of ``./dev lint``.

Each rule reads the syntax tree of one file and yields what it refuses. A line that has a good reason ends in ``# rule NAME: the reason``.
To add a rule: write the function, add it to ``RULES``, and plant what it must refuse in ``tests/rules/test_rules.py``."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
Found = tuple[ast.AST, str]
"""Where, and what is wrong with it and what to write instead."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: its name, the folders (or files) that it reads, those that it leaves out, and what it refuses there."""

    name: str
    folders: tuple[str, ...]
    refuses: Callable[[ast.Module], Iterator[Found]]
    but: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Breach:
    path: str
    line: int
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.text}"


def _bare_results(tree: ast.Module) -> Iterator[Found]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("Result", "Grade"):
            yield (
                node,
                f"{node.func.id}(...): use Result.ok, unknown, skipped or finding (Grade.of): the verdict follows from the severity",
            )


def would_be_words(tree: ast.Module) -> Iterator[Found]:
    """The evidence keys of a check that only observes: ``evidence["would_severity"]``, ``evidence.get("observe")``."""
    for node in ast.walk(tree):
        key = _key_of(node)
        if key == "observe" or (isinstance(node, ast.Constant) and node.value in ("would_severity", "would_remedy")):
            yield (
                node,
                "reads what a finding would be from its evidence: use its fields (model/incidents/observed.py reads the wire)",
            )


def _key_of(node: ast.AST) -> object:
    """``key`` of ``x["key"]`` and of ``x.get("key")``."""
    if isinstance(node, ast.Subscript):
        return node.slice.value if isinstance(node.slice, ast.Constant) else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args:
        return node.args[0].value if isinstance(node.args[0], ast.Constant) else None
    return None


def untyped_answers(tree: ast.Module) -> Iterator[Found]:
    """An answer of the API as a dict: ``got["nodes"]``, ``def row(node: dict[str, Any])``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript):
            if isinstance(_key_of(node), str):
                yield (
                    node,
                    "picks a field of an answer by its name: read the answer into its shape (cli/common/answers.py)",
                )
            elif ast.unparse(node) in ("dict[str, Any]", "Mapping[str, Any]"):
                yield node, "takes an answer as a dict: use its shape (holdfast.api)"


_DAEMON, _STEPS = "daemon/holdfast", "daemon/holdfast/model/actions/steps.py"
_ACTIONS = "daemon/holdfast/model/actions/action.py"
_READS = re.compile("r?split|r?partition|startswith|endswith|removeprefix|removesuffix|r?index|r?find")
"""Methods that read a text by its parts."""


@cache
def _kinds() -> frozenset[str]:
    """Names in the union ``Action``."""
    tree = ast.parse((ROOT / _ACTIONS).read_text())
    assigned = (n for n in tree.body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "Action")
    return frozenset(n.id for one in assigned for n in ast.walk(one.value) if isinstance(n, ast.Name))


def spelled_steps(tree: ast.Module) -> Iterator[Found]:
    """A string that begins with a step, or has one after an incident's id: ``"Drain/n1"``, ``f"{kind.__name__}/{node}"``."""
    spelled = re.compile(rf"(^|/)({'|'.join(sorted(_kinds()))})/")
    joined = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    inside = {id(part) for node in joined for part in node.values}
    plain = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in inside)
    for node in (*joined, *plain):
        parts = node.values if isinstance(node, ast.JoinedStr) else [node]
        if spelled.search("".join(map(_part_of_step, parts))):
            yield node, "spells a step: use its constructor in model/actions/steps.py"


def _part_of_step(part: ast.expr) -> str:
    """As text; a name of a class counts as one of an action."""
    if isinstance(part, ast.Constant):
        return part.value if isinstance(part.value, str) else ""
    name = part.value.attr if isinstance(part, ast.FormattedValue) and isinstance(part.value, ast.Attribute) else ""
    return "Notify" if name in ("__name__", "kind") else "{}"


def parsed_keys(tree: ast.Module) -> Iterator[Found]:
    """A key or a step that is read by the parts of its text: ``intent.key.split("/")``, ``intent.step.text.startswith(…)``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _READS.fullmatch(node.func.attr):
            last, before = _names(node.func.value)
            if last == "key" or "step" in (last, before):
                yield node, "parses a key: use model/actions/steps.py (Key.parse, Intent.step, Intent.attempt)"


def _names(value: ast.expr) -> tuple[str, str]:
    """Last name of ``a.b.c`` and the one before it."""
    if isinstance(value, ast.JoinedStr):
        value = next((part.value for part in value.values if isinstance(part, ast.FormattedValue)), value)
    last = value.attr if isinstance(value, ast.Attribute) else ""
    before = value.value if isinstance(value, ast.Attribute) else None
    return last, before.attr if isinstance(before, ast.Attribute) else ""


def guessed_actions(tree: ast.Module) -> Iterator[Found]:
    """``getattr`` of an action: what an action has is known by its type, what it acts on is its ``target``."""
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args)
    for node in calls:
        of = ast.unparse(node.args[0]).rpartition(".")[2]
        if of == "action" and ast.unparse(node.func) in ("getattr", "hasattr"):
            yield node, "guesses what an action has: use its target, or isinstance"


_OF_THE_STATE = frozenset({"state_since", "closed_at"})


def _other_doors(tree: ast.Module) -> Iterator[Found]:
    """An incident made, or its state or the times of it set, by hand."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = _called(node)
        if name == "Incident":
            yield node, "Incident(...): use open_incident of holdfast.model.incidents.transitions"
        for keyword in node.keywords:
            of_the_state = keyword.arg in _OF_THE_STATE or (keyword.arg == "state" and name == "replace")
            if of_the_state and not _of_something_else(node, keyword):
                yield (
                    keyword.value,
                    f"{keyword.arg}=: use raise_to, move or close of holdfast.model.incidents.transitions",
                )
            if name == "replace" and ast.unparse(keyword).startswith("kind=IncidentKind."):
                yield keyword.value, "kind=: only not_dead of holdfast.model.incidents.transitions changes it"


_STOPPERS = frozenset({"Requeue", "HoldJob", "SetDown", "MayStop"})
_STOP_ORDERS = re.compile(r"(.*\.)?Verb\.(LEAVE|END_JOB)")


def stops_elsewhere(tree: ast.Module) -> Iterator[Found]:
    """An action that stops a run, or the permission for one, made by hand: ``Requeue(key, 1)``, ``order_to(agent, Verb.LEAVE, …)``."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        given = (*node.args, *(keyword.value for keyword in node.keywords))
        order = _called(node) in ("order_to", "SendOrder") and any(_is_stop_order(value) for value in given)
        if order or _called(node) in _STOPPERS:
            yield (
                node,
                "stops a run: ask may_stop_run of decisions/common/may_stop_run.py, which also builds the action",
            )


def _is_stop_order(value: ast.expr) -> bool:
    return isinstance(value, ast.Attribute) and _STOP_ORDERS.fullmatch(ast.unparse(value)) is not None


def _called(call: ast.Call) -> str:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _of_something_else(call: ast.Call, keyword: ast.keyword) -> bool:
    """``replace(intent, state=…)``, ``replace(machine, state="pending")``: the state of another noun."""
    if keyword.arg != "state":
        return False
    of_an_intent = bool(call.args) and isinstance(call.args[0], ast.Name) and call.args[0].id == "intent"
    return of_an_intent or (isinstance(keyword.value, ast.Constant) and isinstance(keyword.value.value, str))


def _compared_checks(tree: ast.Module) -> Iterator[Found]:
    """An incident's ``check`` compared with a name: it is shown, and changes under way. Two checks may be compared."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            checks = [isinstance(side, ast.Attribute) and side.attr == "check" for side in sides]
            if any(checks) and not all(checks):
                yield (
                    node,
                    "an incident's check is compared: ask its kind (IncidentKind), or a field that says what is meant",
                )


_PROSE = frozenset(
    {"note", "reason", "text", "outcome", "summary", "headline", "consent", "why", "said", "told", "body", "subject"}
    | {"message", "comment", "admin_comment"}
)
"""Names of what is written for people, and of what people wrote."""
_OF_A_KEY = frozenset({"run", "step", "key", "job"})
"""Whose ``text`` is a key: ``intent.step.text``, ``recovery.job.text``."""
_LOOKS_UP = re.compile("match|search|fullmatch|findall|finditer|get")


def decisions_on_prose(tree: ast.Module) -> Iterator[Found]:
    """A text for people that is compared, searched, cut or looked up: ``i.note != _ONE``, ``"dead" in reason``, ``said.split()``.

    To show it, to hand it on and to ask whether there is one is fine, and so is a field of such a name that holds an enum's member."""
    for node in ast.walk(tree):
        match node:
            case ast.Compare():
                refused = any(_compares_prose(*each) for each in zip(node.ops, _pairs(node), strict=True))
            case ast.Call(func=ast.Attribute(value=value, attr=method)) if _READS.fullmatch(method):
                refused = _is_prose(value)
            case ast.Call(func=ast.Attribute(attr=method), args=args) if _LOOKS_UP.fullmatch(method):
                refused = any(map(_is_prose, args))
            case ast.Subscript(slice=value) | ast.Match(subject=value):
                refused = _is_prose(value)
            case _:
                refused = False
        if refused:
            yield node, "decides by a text for people: give it a typed value as well (an enum, a field, None)"


def _pairs(node: ast.Compare) -> list[tuple[ast.expr, ast.expr]]:
    operands = [node.left, *node.comparators]
    return list(pairwise(operands))


def _compares_prose(op: ast.cmpop, pair: tuple[ast.expr, ast.expr]) -> bool:
    if not isinstance(op, ast.Eq | ast.NotEq | ast.In | ast.NotIn) or any(map(_of_an_enum, pair)):
        return False
    parts = [part for one in pair for part in _parts(one)]
    return any(map(_is_prose, pair)) or any(_is_a_sentence(part) for part in parts)


def _parts(value: ast.expr) -> list[ast.expr]:
    return list(value.elts) if isinstance(value, ast.Tuple | ast.List | ast.Set) else [value]


def _is_a_sentence(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and isinstance(value.value, str) and " " in value.value.strip()


def _of_an_enum(value: ast.expr) -> bool:
    """``Outcome.BAD``, ``(Outcome.BAD, Outcome.GOOD)``."""
    members = [
        p for p in _parts(value) if isinstance(p, ast.Attribute) and p.attr.isupper() and _last(p.value)[:1].isupper()
    ]
    return bool(members) and members == _parts(value)


def _is_prose(value: ast.expr) -> bool:
    """``a.note``, ``note``, ``a["note"]``, ``a.get("note")``."""
    match value:
        case ast.Name(id=name):
            return name in _PROSE
        case ast.Attribute(value=of, attr=name):
            return name in _PROSE and not (name == "text" and _last(of) in _OF_A_KEY)
        case ast.Subscript(slice=ast.Constant(value=name)):
            return name in _PROSE
        case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value=name), *_]):
            return name in _PROSE
        case ast.Call(func=ast.Attribute(value=of, attr="lower" | "casefold" | "strip" | "replace")):
            return _is_prose(of)
        case ast.Call(func=ast.Name(id="str"), args=[of]):
            return _is_prose(of)
    return False


def _last(value: ast.expr) -> str:
    return value.attr if isinstance(value, ast.Attribute) else value.id if isinstance(value, ast.Name) else ""


_UNIT_S = {"seconds": 1, "minutes": 60, "hours": 3600, "days": 86_400, "weeks": 604_800}


def undeclared_windows(tree: ast.Module) -> Iterator[Found]:
    """A time of an hour or more as a number: ``timedelta(days=7)``. What the store loads would not grow with it."""
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "timedelta"):
            continue
        given = ((k.arg, k.value.value) for k in node.keywords if isinstance(k.value, ast.Constant))
        if any(isinstance(value, int | float) and value * _UNIT_S.get(str(unit), 0) >= 3600 for unit, value in given):
            yield (
                node,
                "a private time window: declare it in model/policies/lookback.py, which says what the store must load for it",
            )


def host_names(tree: ast.Module) -> Iterator[Found]:
    """``socket.gethostname()``: two processes of one machine, and a copy of a machine, have the same."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _called(node) in ("gethostname", "getfqdn"):
            yield node, "a host name says which machine, not which process: use lease_holder.claim"


_ROOM_NAMES = "daemon/holdfast/model/elastic_jobs/room_names.py"
_ROOM = re.compile(r"job-(\{\}|\d|\(|\\d|\[0)")
"""Prefix of the name of a rendezvous, or of a pattern that matches one. ``{}``: a placeholder."""


def rooms_by_id(tree: ast.Module) -> Iterator[Found]:
    """The name of a rendezvous spelled or taken apart: ``f"job-{base}"``, ``re.compile(r"job-(\\d+)")``, ``room.name.split("-")``."""
    joined = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    inside = {id(part) for node in joined for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and id(node) not in inside):
            parts = node.values if isinstance(node, ast.JoinedStr) else [node]
            text = "".join(str(p.value) if isinstance(p, ast.Constant) else "{}" for p in parts)
            if _ROOM.match(text) or text == "job-":
                yield (
                    node,
                    "spells a rendezvous: job ids are used again, use RoomName or job_label (model/elastic_jobs/room_names.py)",
                )
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _READS.fullmatch(node.func.attr):
            of = ast.unparse(node.func.value)
            if re.search(r"(^|[._])room(_name|\.name)?$", of):
                yield (
                    node,
                    "takes the name of a rendezvous apart: use RoomName.parse (model/elastic_jobs/room_names.py)",
                )


_CHECKS = "healthchecks/holdfast_checks"
_LOOP = tuple(f"{_DAEMON}/{folder}" for folder in ("controller", "actor", "decisions", "head", "metrics"))


@cache
def _foreign_words() -> frozenset[str]:
    """Names of the enums whose words are stored or sent: those with ``@unknown_reads_as``."""
    trees = (ast.parse(file.read_text()) for folder in (_DAEMON, _CHECKS) for file in _python_files(ROOT / folder))
    classes = (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    return frozenset(
        c.name
        for c in classes
        if any(isinstance(d, ast.Call) and _called(d) == "unknown_reads_as" for d in c.decorator_list)
    )


def trusted_words(tree: ast.Module) -> Iterator[Found]:
    """An enum of stored or sent words made of a text: ``Severity(row.severity)``, ``Severity[name]``, ``map(Severity, names)``."""
    text = "ends with ValueError at a word of another release: use holdfast.unknown.read_word, or known of holdfast_checks.words"
    for node in ast.walk(tree):
        match node:
            case ast.Call(args=[ast.Constant()]):
                continue
            case ast.Call(func=ast.Name(id="map"), args=[maker, *_]):
                made = _last(maker)
            case ast.Call(args=[_]):
                made = _called(node)
            case ast.Subscript(value=value, slice=ast.Name() | ast.Attribute() | ast.Subscript() | ast.Call()):
                made = _last(value)
            case _:
                continue
        if made in _foreign_words():
            yield node, f"{made}: {text}"


_LEVELS = frozenset({"debug", "info", "warning", "error", "exception", "critical", "log"})


def nameless_events(tree: ast.Module) -> Iterator[Found]:
    """A line of the log that does not start with its event: ``log.info("launched node=%s", node)``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _called(node) in _LEVELS and isinstance(node.func, ast.Attribute):
            of = _last(node.func.value) or ast.unparse(node.func.value)
            text = node.args[node.func.attr == "log" :][:1]
            named = bool(text) and isinstance(text[0], ast.Constant) and str(text[0].value).startswith("event=")
            if not named and (of.lower().strip("_") in ("log", "logger", "logging") or "getLogger(" in of):
                yield node, 'a line of the log starts with "event=NAME ", as a literal: people and alerts search for it'


_OF_A_PROCESS = frozenset(
    {
        "cmdline",
        "environ",
        "uids",
        "gids",
        "username",
        "as_dict",
        "memory_maps",
        "open_files",
        "net_connections",
        "oneshot",
    }
)
"""Methods of psutil that read a file of ``/proc/PID`` of whatever length its user chose, or trust the process name in it."""
_PROCESS_FILE = re.compile(r"/proc/\{\}/(?!ns/|fd/)")


def unbounded_processes(tree: ast.Module) -> Iterator[Found]:
    """A process of a user's read whole: ``process.environ()``, ``psutil.process_iter(["cmdline"])``, ``open(f"/proc/{pid}/maps")``."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called, of = _called(node), node.func.value if isinstance(node.func, ast.Attribute) else None
        ours = isinstance(of, ast.Name) and of.id == "process_files"
        method = called in _OF_A_PROCESS or (called == "name" and not node.args)
        if called == "process_iter" or (method and of is not None and not ours):
            yield node, "reads what a user may make of any length or content: use probes/process_files.py"
        elif called in ("open", "read_text", "read_bytes") and any(map(_process_file, ast.walk(node))):
            yield node, "reads a file of /proc/PID whole: use probes/process_files.py"


def _process_file(node: ast.AST) -> bool:
    parts = node.values if isinstance(node, ast.JoinedStr) else []
    return bool(_PROCESS_FILE.match("".join(str(p.value) if isinstance(p, ast.Constant) else "{}" for p in parts)))


RULES: tuple[Rule, ...] = (
    Rule("unbounded-process", (f"{_DAEMON}/agent", _CHECKS), unbounded_processes),
    Rule("nameless-event", (_DAEMON,), nameless_events),
    Rule("kind-not-check", (*_LOOP, f"{_DAEMON}/api"), _compared_checks),
    Rule(
        "prose",
        (*_LOOP, f"{_DAEMON}/model", f"{_DAEMON}/store", f"{_DAEMON}/api"),
        decisions_on_prose,
        but=(f"{_DAEMON}/store/upgrades.py", f"{_DAEMON}/api/requests/wire.py", f"{_DAEMON}/store/columns.py"),
    ),
    Rule("one-door", ("daemon/holdfast",), _other_doors, but=("daemon/holdfast/model/incidents/transitions.py",)),
    Rule(
        "result-constructors",
        ("healthchecks/holdfast_checks", "daemon/holdfast"),
        _bare_results,
        but=("healthchecks/holdfast_checks/result.py",),
    ),
    Rule(
        "would-be-words",
        ("healthchecks/holdfast_checks", _DAEMON),
        would_be_words,
        but=(f"{_DAEMON}/model/incidents/observed.py", f"{_DAEMON}/store/upgrades.py"),
    ),
    Rule(
        "untyped-answers",
        (f"{_DAEMON}/cli",),
        untyped_answers,
        but=(f"{_DAEMON}/api/client.py", f"{_DAEMON}/cli/common/answers.py"),
    ),
    Rule("spelled-step", (_DAEMON,), spelled_steps, but=(_STEPS,)),
    Rule("parsed-key", (_DAEMON,), parsed_keys, but=(_STEPS,)),
    Rule("guessed-action", (_DAEMON,), guessed_actions),
    Rule("stops-elsewhere", (_DAEMON,), stops_elsewhere, but=(f"{_DAEMON}/decisions/common/may_stop_run.py",)),
    Rule("room-by-id", (_DAEMON, "training", "bench"), rooms_by_id, but=(_ROOM_NAMES,)),
    Rule(
        "trusted-word",
        (_DAEMON, _CHECKS),
        trusted_words,
        but=(
            f"{_DAEMON}/providers/command/contract.py",  # verbs of its own, each compared before
            f"{_DAEMON}/unknown.py",
            f"{_CHECKS}/words.py",
            f"{_CHECKS}/catalog",  # data of this very release
            f"{_CHECKS}/custom.py",  # the site's settings, checked when they are read
            f"{_CHECKS}/custom_answer.py",  # a script's answer, refused as a whole
        ),
    ),
    Rule("host-name", (*_LOOP, f"{_DAEMON}/store"), host_names),
    Rule("undeclared-window", _LOOP, undeclared_windows, but=(f"{_DAEMON}/controller/loop.py",)),
)


def breaches(path: str, source: str, rules: Sequence[Rule] = RULES) -> list[Breach]:
    """What these rules refuse in a file. ``path``: from the root of the repository, with slashes."""
    mine = [r for r in rules if _within(path, r.folders) and not _within(path, r.but)]
    if not mine:
        return []
    tree, lines = ast.parse(source), source.splitlines()
    found = [
        Breach(path, getattr(node, "lineno", 1), rule.name, text) for rule in mine for node, text in rule.refuses(tree)
    ]
    return sorted((b for b in found if not _excused(lines, b)), key=lambda b: (b.line, b.rule))


def _within(path: str, folders: Sequence[str]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)


def _excused(lines: Sequence[str], breach: Breach) -> bool:
    return re.search(rf"# rule {re.escape(breach.rule)}: \S", lines[breach.line - 1]) is not None


def main() -> int:
    folders = sorted({folder for rule in RULES for folder in rule.folders})
    files = sorted({file for folder in folders for file in _python_files(ROOT / folder)})
    found = [b for file in files for b in breaches(file.relative_to(ROOT).as_posix(), file.read_text())]
    for breach in found:
        print(breach)  # noqa: T201
    return 1 if found else 0


def _python_files(place: Path) -> list[Path]:
    return [place] if place.is_file() else list(place.rglob("*.py"))


if __name__ == "__main__":
    sys.exit(main())
