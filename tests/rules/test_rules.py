"""The project's own lint rules refuse the patterns that they name, and the tree keeps them."""

from __future__ import annotations

import pytest

from support.linters import load

rules = load("rules")

DECIDE = "daemon/holdfast/decisions/repair/any.py"

PLANTED: tuple[tuple[str, str, str], ...] = (
    ("unbounded-process", "daemon/holdfast/agent/x.py", "title = ' '.join(process.cmdline())"),
    ("unbounded-process", "daemon/holdfast/agent/x.py", "env = psutil.Process(pid).environ()"),
    ("unbounded-process", "daemon/holdfast/agent/x.py", "mine = process.uids().effective == 0"),
    ("unbounded-process", "daemon/holdfast/agent/x.py", "found = [p.pid for p in psutil.process_iter(['cmdline'])]"),
    ("unbounded-process", "healthchecks/holdfast_checks/probes/x.py", "name = psutil.Process(pid).name()"),
    ("unbounded-process", "daemon/holdfast/agent/x.py", "said = child.name()"),
    ("unbounded-process", "healthchecks/holdfast_checks/x.py", "Path(f'/proc/{pid}/status').read_text()"),
    ("unbounded-process", "daemon/holdfast/agent/x.py", "with open(f'/proc/{pid}/maps', 'rb') as file: pass"),
    ("nameless-event", "daemon/holdfast/x.py", "log.info('launched node=%s', node)"),
    ("nameless-event", "daemon/holdfast/x.py", "_LOG.log(level, line, node)"),
    ("nameless-event", "daemon/holdfast/x.py", "logging.getLogger(__name__).error(f'event={name}')"),
    ("kind-not-check", "daemon/holdfast/controller/x.py", "[i for i in found if i.check == node_incidents.HUNG]"),
    ("kind-not-check", "daemon/holdfast/api/x.py", "if 'job.hung' != incident.check: pass"),
    ("kind-not-check", "daemon/holdfast/decisions/repair/x.py", "incident.check in (HUNG, STRAGGLER)"),
    ("one-door", "daemon/holdfast/controller/x.py", "Incident(id='1', state=IncidentState.OPEN)"),
    ("one-door", "daemon/holdfast/controller/x.py", "incident.Incident(id='1')"),
    ("one-door", "daemon/holdfast/controller/x.py", "after = replace(incident, note='', state=_S.CLOSED)"),
    ("one-door", "daemon/holdfast/store/x.py", "replace(found, state=state)"),
    ("one-door", "daemon/holdfast/controller/x.py", "replace(incident, state_since=world.now)"),
    ("one-door", "daemon/holdfast/controller/x.py", "dataclasses.replace(incident, closed_at=None)"),
    ("one-door", "daemon/holdfast/controller/x.py", "Draft(closed_at=now)"),
    ("one-door", "daemon/holdfast/controller/x.py", "replace(incident, kind=IncidentKind.PAIR)"),
    ("result-constructors", "healthchecks/holdfast_checks/checks/x.py", "Result('host.x', Verdict.OK)"),
    ("result-constructors", "daemon/holdfast/agent/x.py", "Grade(Severity.FATAL, Remedy.NONE, failed=False)"),
    ("would-be-words", DECIDE, 'worse = finding.evidence["would_severity"] == "fatal"'),
    ("would-be-words", "daemon/holdfast/cli/x.py", 'wanted = evidence.get("would_remedy")'),
    ("would-be-words", DECIDE, 'if finding.evidence.get("observe") is True: pass'),
    ("would-be-words", "healthchecks/holdfast_checks/checks/x.py", 'evidence = {"would_severity": severity.value}'),
    ("trusted-word", "daemon/holdfast/store/x.py", "found = Severity(row.severity)"),
    ("trusted-word", "daemon/holdfast/quorum/x.py", "gone = nouns.Departure(why)"),
    ("trusted-word", "healthchecks/holdfast_checks/x.py", "severity = result.Severity(said['severity'])"),
    ("trusted-word", "daemon/holdfast/api/x.py", "state = IncidentState[name]"),
    ("trusted-word", "daemon/holdfast/api/x.py", "states = tuple(map(IncidentState, names))"),
    ("untyped-answers", "daemon/holdfast/cli/x.py", 'line(got["nodes"])'),
    ("untyped-answers", "daemon/holdfast/cli/x.py", "def row(node: dict[str, Any]) -> list[object]: ..."),
    ("spelled-step", DECIDE, 'step = "Notify/hangs"'),
    ("spelled-step", DECIDE, 'step = f"Drain/{node}"'),
    ("spelled-step", DECIDE, 'key = f"{incident.id}/SetDown/{node}/1"'),
    ("spelled-step", DECIDE, 'step = f"{type(action).__name__}/{room}.{what}"'),  # word: code
    ("spelled-step", "daemon/holdfast/api/any.py", 'EXAMPLE = {"id": "0h3k5d2m8x1q/SendOrder/validate/n1.0/1"}'),
    ("parsed-key", DECIDE, 'number = int(intent.key.rsplit("/", 1)[1])'),
    ("parsed-key", DECIDE, "mine = [k for k in known if order.key.startswith(prefix)]"),
    ("parsed-key", DECIDE, 'room = intent.step.target.partition(".")[0]'),  # word: code
    ("parsed-key", DECIDE, 'mine = f"{intent.step}.".startswith(stem)'),
    ("stops-elsewhere", DECIDE, "action = Requeue(job.key, job.restarts)"),
    ("stops-elsewhere", "daemon/holdfast/head/x.py", "action.HoldJob(job=key, reason=why)"),
    ("stops-elsewhere", "daemon/holdfast/controller/x.py", "SetDown(node, 'gone')"),
    ("stops-elsewhere", DECIDE, "may = may_stop_run.MayStop()"),
    ("stops-elsewhere", DECIDE, "order = node_agents.order_to(agent, Verb.LEAVE, 30.0, args)"),
    ("stops-elsewhere", DECIDE, "SendOrder(node, machine, boot, verb=action.Verb.END_JOB, expires_s=1.0, args={})"),
    ("guessed-action", DECIDE, 'node = getattr(intent.action, "node", None)'),
    ("guessed-action", "daemon/holdfast/model/actions/action.py", 'job = getattr(action, "job", None)'),
    ("guessed-action", DECIDE, 'if hasattr(ordered.action, "boot_id"): pass'),
    ("prose", DECIDE, 'over = recovery.consent in ("it failed by itself", "it lost the node")'),  # word: code
    ("prose", DECIDE, "if incident.note != _ONE_CAUSE: pass"),
    ("prose", DECIDE, "ended = outlived(intent)\nagain = ended == 'the node was heard again'"),
    ("prose", DECIDE, "dead = DEAD_CHECK in action.reason"),  # word: code
    ("prose", DECIDE, "known = latest.outcome.startswith(UNSUPPORTED)"),
    ("prose", DECIDE, 'about = incident.headline.partition(": ")[2]'),
    ("prose", DECIDE, 'what = finding.summary.lower().removeprefix("xid ")'),
    ("prose", DECIDE, "found = re.search(r'job (\\d+)', event.text)"),
    ("prose", DECIDE, "found = _PATTERN.fullmatch(str(reason))"),
    ("prose", DECIDE, "opted_in = WORD in job.comment.replace(',', ' ').split()"),
    ("prose", DECIDE, "kind = _KINDS[intent.outcome]"),
    ("prose", DECIDE, "kind = _KINDS.get(why)"),
    ("prose", "daemon/holdfast/api/x.py", 'bad = raw["summary"] == BAD or raw.get("note") in WORSE'),
    ("prose", "daemon/holdfast/model/x.py", "match self.reason:\n    case 'Resources': pass"),
    ("prose", "daemon/holdfast/store/x.py", "text.rsplit(':', 1)"),
    ("host-name", "daemon/holdfast/controller/x.py", "holder = settings.run.holder or socket.gethostname()"),
    ("host-name", "daemon/holdfast/store/x.py", "from socket import getfqdn\nmine = getfqdn()"),
    ("room-by-id", DECIDE, 'room = f"job-{base_array_id}"'),  # word: code
    ("room-by-id", "daemon/holdfast/quorum/x.py", 'room = "job-" + str(number)'),  # word: code
    ("room-by-id", "bench/kit/x.py", 'rooms.open(f"job-{base}-{submitted_s}", rules)'),  # word: code
    ("room-by-id", "daemon/holdfast/api/x.py", 'examples = ["job-71"]'),
    ("room-by-id", "daemon/holdfast/model/elastic_jobs/rooms.py", 'read = re.compile(r"job-(\\d+)")'),
    ("room-by-id", DECIDE, 'base = int(record.room.removeprefix("x").strip())'),  # word: code
    ("room-by-id", DECIDE, 'base = room.name.split("-")[1]'),  # word: code
    ("undeclared-window", DECIDE, "since = world.now - timedelta(days=7)"),
    ("undeclared-window", DECIDE, "_HOUR = timedelta(minutes=60)"),
)
"""(rule, path, source that it must refuse)."""

FINE: tuple[tuple[str, str], ...] = (
    ("daemon/holdfast/controller/x.py", "cause.check == incident.check; incident.kind is IncidentKind.PAIR"),
    ("daemon/holdfast/agent/x.py", "[r for r in results if r.check == check]"),
    ("daemon/holdfast/controller/x.py", "IncidentShape(state=x); NewIncident(id='1'); incident.state is state"),
    ("daemon/holdfast/controller/x.py", "replace(intent, state=outcome.state); replace(machine, state='pending')"),
    ("daemon/holdfast/controller/x.py", "replace(incident, note='', dead=True); text.replace('state', 'x')"),
    ("daemon/holdfast/controller/x.py", "NewIncident(kind=IncidentKind.PAIR); replace(event, kind=EventKind.OPERATOR)"),
    (
        "daemon/holdfast/model/incidents/transitions.py",
        "replace(incident, state=state, state_since=at, closed_at=None)",
    ),
    ("healthchecks/holdfast_checks/checks/x.py", "Result.ok('host.x'); Grade.of(Severity.FATAL)"),
    ("healthchecks/holdfast_checks/checks/x.py", "BatchResult('host.x')"),
    ("healthchecks/holdfast_checks/result.py", "Result('host.x', Verdict.OK)"),
    ("tests/checks/test_x.py", "Result('host.x', verdict)"),
    ("daemon/holdfast/model/actions/steps.py", 'text = f"Drain/{node}"'),
    (DECIDE, '"""Drains of ``Drain/node`` are told apart by Drain, not by Drain/."""'),  # word: code
    (DECIDE, 'text = f"the provider drains/{node}"'),
    (DECIDE, 'path = f"{kind}/{name}"'),
    (DECIDE, 'known = intent.key in book.intents and found.partition("/") and job.key.job_id'),  # word: code
    (DECIDE, 'shown = getattr(intent, "node", None) or getattr(transaction, "node")'),
    (DECIDE, "if incident.note and why is not None: shown = f'{why}: {incident.note}'[:300]"),
    (DECIDE, "bad = probe.outcome in (Outcome.BAD, Outcome.RUNNING) or why == Ban.PAUSE or outcome is Outcome.GOOD"),
    (DECIDE, "kept = run.text in done or intent.step.text == other or held.get(recovery.job.text)"),
    (DECIDE, 'shown = raw["note"], raw.get("summary"), "reason" in raw, reason.replace(",", " ")'),
    (DECIDE, "held = job.reason in HELD  # rule prose: Slurm's own words"),
    ("daemon/holdfast/model/elastic_jobs/room_names.py", 'label = f"job-{base_array_id}"'),
    (
        DECIDE,
        'name = room.name_of_job; text = f"{job_label(base)} grows"; threads = "job-socket", f"--job-name={name}"',  # word: code
    ),
    ("daemon/holdfast/quorum/x.py", "advertise = socket.gethostname()"),
    ("daemon/holdfast/cli/x.py", 'if group.reason == "BeginTime": pass'),
    ("daemon/holdfast/cli/x.py", 'kind = event.detail.get("kind"); argv[0]; row[index]; x: dict[str, tuple[str, ...]]'),
    ("daemon/holdfast/api/client.py", 'token = env["HOLDFAST_TOKEN"]'),
    (DECIDE, "worse = finding.would_severity is Severity.FATAL and not finding.observed"),
    ("daemon/holdfast/config/x.py", 'MODES = ("observe", "act")'),
    ("daemon/holdfast/model/incidents/observed.py", 'said = evidence.get("would_severity")'),
    (
        "daemon/holdfast/store/x.py",
        "found = read_word(Severity, row.severity, 'x'); every = list(Severity); Severity('fatal')",
    ),
    ("daemon/holdfast/unknown.py", "found = Severity(said)"),
    ("daemon/holdfast/x.py", "log.log(level, 'event=launched node=%s', node); journal.info('x'); math.log(2)"),
    (DECIDE, "since = world.now - timedelta(seconds=BRAKE_LONG_S)"),
    (DECIDE, "soon = world.now + timedelta(seconds=30)"),
    ("daemon/holdfast/store/any.py", "since = now - timedelta(days=7)"),
)
"""(path, source that no rule refuses): what looks like a breach and is none."""


@pytest.mark.parametrize(("rule", "path", "source"), PLANTED)
def test_a_planted_breach_is_refused(rule: str, path: str, source: str) -> None:
    assert rule in {breach.rule for breach in rules.breaches(path, source)}


@pytest.mark.parametrize(("path", "source"), FINE)
def test_what_is_fine_is_let_pass(path: str, source: str) -> None:
    assert rules.breaches(path, source) == []


def test_every_rule_is_planted() -> None:
    assert {rule.name for rule in rules.RULES} == {rule for rule, _, _ in PLANTED}


@pytest.mark.slow
def test_the_tree_keeps_the_rules(capsys: pytest.CaptureFixture[str]) -> None:
    assert rules.main() == 0, capsys.readouterr().out
