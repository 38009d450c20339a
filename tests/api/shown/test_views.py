"""What users and programs see and may order: nodes, incidents, jobs, actions, events, metrics, health."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import unexpected
from holdfast.api.shown.views import job_shapes
from holdfast.controller.keeping.steps_untaken import UntakenWatch
from holdfast.controller.observing.agents import Hello
from holdfast.decisions.inputs import Input, InputKind
from holdfast.model.actions.action import Drain, Intent, IntentState, SendOrder, Verb
from holdfast.model.background import Background, Lemon, Outage
from holdfast.model.book import Book, Brake, BrakeKind, Change, CheckpointRecord, NodeRecord, World
from holdfast.model.event import Event, EventKind
from holdfast.model.incidents.incident import Incident, IncidentState, Recovery, RecoveryPhase
from holdfast.model.jobs.job_ends import Cause, Clue, JobEnd, Reading, Sign
from holdfast.model.policies.policy import Policy
from holdfast.model.slurm.cluster import ClusterView, Job, JobKey, Node, Reservation
from holdfast_checks.result import Remedy, Severity

T0 = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
ID = "0h3k5d2m8x1q"
PROPOSAL = f"{ID}.1"

INCIDENT = Incident(
    id=ID,
    node="n1",
    instance_id="i-1",
    boot_id="b-1",
    state=IncidentState.AWAITING_HUMAN,
    severity=Severity.FATAL,
    remedy=Remedy.REPLACE,
    check="gpu.xid",
    headline="gpu.xid 79 GPU-3: fell off the bus",
    fault_at=T0 - timedelta(seconds=10),
    opened_at=T0 - timedelta(seconds=9.8),
    gpu_minors=frozenset({3, 1}),
    note="no capacity",
)
JOB = JobKey("c", 7, T0 - timedelta(hours=1))
RECOVERY = Recovery(
    job=JOB,
    restarts_before=0,
    incident_id=ID,
    phase=RecoveryPhase.RUNNING,
    user="ann",
    uid=1001,
    nodes_before=("n1", "n2"),
    excluded_before=(),
    partition="gpu",
    gpus=16,
    created_at=T0 - timedelta(seconds=9),
)


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def a_story() -> Change:
    drain = Intent(f"{ID}/Drain/n1/1", ID, Drain("n1", "because"), "xid 79", 1, IntentState.PLANNED, at(-9.7))
    events = (
        Event(at(-10), EventKind.FAULT_OCCURRED, ID, "n1"),
        Event(at(-9.8), EventKind.INCIDENT_OPENED, ID, "n1", text="opened"),
        Event(at(-9.7), EventKind.ACTION_PLANNED, ID, "n1", detail={"kind": "Drain"}),
        Event(at(-9.2), EventKind.NODE_OUT, ID, "n1"),
        Event(
            at(-8.5),
            EventKind.JOB_STOPPED,
            ID,
            "n1",
            JOB.text,
            detail={"gpus": 16, "checkpoint_at": at(-68.5).isoformat()},
        ),
        Event(at(-6.5), EventKind.JOB_RUNNING, ID, "n1", JOB.text),
    )
    return Change(incidents=(INCIDENT,), recoveries=(RECOVERY,), intents=(drain,), events=events)


def a_world(**book: Any) -> World:
    nodes = {
        "n1": Node("n1", "IDLE", frozenset({"DRAIN"}), reason="holdfast[x]: y", partitions=("gpu",), gpu_count=8),
        "n2": Node("n2", "IDLE", frozenset()),
    }
    view = ClusterView("c", T0, nodes, {}, {"holdfast-spares": Reservation("holdfast-spares", ("n2",))})
    return World(T0, Policy(), Book(incidents={ID: INCIDENT}, **book), view)


def test_nodes_merge_slurm_agents_incidents_spares_and_brakes(served: Any) -> None:
    brake = Brake(BrakeKind.DRAINS, T0, "4 drains in 10 minutes, at most 3")
    served.world = a_world(
        brakes={"drains": brake, "job_stops": replace(brake, kind=BrakeKind.JOB_STOPS, released_at=T0)}
    )
    served.agents.heard(Hello("n1", "i-1", "b-1", interval_s=10.0, fabric_silent_s=90.0), T0, 0.0)
    served.agents.heard(Hello("n9", "i-9", "b-9", interval_s=10.0), T0 - timedelta(seconds=60), 0.0)
    got = served.call("GET", "/v1/nodes").json()
    nodes = {n["name"]: n for n in got["nodes"]}
    assert list(nodes) == ["n1", "n2", "n9"]
    assert [nodes[n]["agents"][0]["status"] for n in nodes] == ["heard", "unknown", "silent"]
    moved_at = [nodes[n]["agents"][0]["fabric_moved_at"] for n in nodes]
    assert (moved_at[0][:19], moved_at[1:]) == (f"{T0 - timedelta(seconds=90):%Y-%m-%dT%H:%M:%S}", [None, None])
    assert (nodes["n1"]["state"], nodes["n1"]["gpus"], nodes["n2"]["spare"]) == ("IDLE+DRAIN", 8, True)
    assert nodes["n1"]["incidents"][0]["gpu_minors"] == [1, 3]
    assert nodes["n1"]["why"] == f"{INCIDENT.headline}: no capacity; brake drains: {brake.reason}"
    assert [b["kind"] for b in got["brakes"]] == ["drains"]
    assert (got["cluster"], got["mode"], got["slurm_read_at"][:10]) == ("c", "observe", "2026-03-01")


def test_nodes_before_the_first_turn(served: Any) -> None:
    got = served.call("GET", "/v1/nodes").json()
    assert (got["nodes"], got["slurm_read_at"], got["frozen"]) == ([], None, "the control loop has not turned yet")


def test_an_incident_with_its_whole_story(served: Any) -> None:
    served.commit(a_story())
    story = served.call("GET", f"/v1/incidents/{ID}").json()
    assert story["incident"]["headline"] == INCIDENT.headline
    kinds = [e["kind"] for e in story["timeline"]]
    assert kinds[:2] == ["fault.occurred", "incident.opened"]
    assert [(a["kind"], a["target"]) for a in story["actions"]] == [("Drain", "n1")]
    assert story["recoveries"][0]["job"]["job_id"] == 7
    assert story["timings"]["phases"]["detect"] == pytest.approx(0.2)
    assert story["timings"]["time_to_running_s"] == pytest.approx(3.5)


def test_lists_and_filters(served: Any) -> None:
    closed = replace(
        INCIDENT, id="0h3k5d2m8x1r", node="n2", state=IncidentState.CLOSED, opened_at=at(5), closed_at=at(6)
    )
    served.commit(a_story())
    served.commit(Change(incidents=(closed,)))

    def ids(query: str) -> list[str]:
        return [i["id"] for i in served.call("GET", f"/v1/incidents{query}").json()["incidents"]]

    assert ids("") == [closed.id, ID]
    assert ids("?open=true") == [ID]
    assert ids("?node=n2") == [closed.id]
    assert ids("?since=2026-03-01T12:00:01Z") == [closed.id]
    assert ids("?since=2026-03-01T14:00:01%2B02:00") == [closed.id]
    assert ids("?limit=1") == [closed.id]


def test_events_are_read_with_a_cursor(served: Any) -> None:
    served.commit(a_story())
    seen: list[int] = []
    after = 0
    while True:
        page = served.call("GET", f"/v1/events?limit=2&after_id={after}").json()
        if not page["events"]:
            break
        seen += [e["id"] for e in page["events"]]
        after = page["next_after_id"]
    assert len(seen) == len(set(seen)) >= 6
    kinds = {e["kind"] for e in served.call("GET", "/v1/events?kind=job.stopped&kind=job.running").json()["events"]}
    assert kinds == {"job.stopped", "job.running"}


def test_a_user_sees_only_the_own_jobs(served: Any) -> None:
    other = replace(RECOVERY, job=JobKey("c", 8, T0), uid=1002, user="bob")
    served.commit(a_story())
    served.commit(Change(recoveries=(other,)))
    record = CheckpointRecord(9, 1002, 0, "/scratch/bob", fenced=True)
    hers = replace(record, job_id=7, uid=1001, directory="/scratch/ann", node="n1")
    served.world = a_world(checkpoints={9: {"": record}, 7: {"n1": hers, "n9": replace(hers, uid=1002, node="n9")}})
    assert [j["job_id"] for j in served.call("GET", "/v1/jobs").json()["jobs"]] == [9, 8, 7]
    (mine,) = served.call("GET", "/v1/jobs", "1001").json()["jobs"]
    assert (mine["job_id"], mine["user"], mine["checkpoint"]["directory"]) == (7, "ann", "/scratch/ann")
    assert served.call("GET", "/v1/jobs?job_id=9", "1001").json()["jobs"] == []


def test_a_user_sees_nothing_of_another_users_job_that_had_the_id_before() -> None:
    before = replace(RECOVERY, job=JobKey("c", 7, T0 - timedelta(days=9)), uid=1002, user="bob")
    for known in ((before, RECOVERY), (RECOVERY, before)):
        for uid, name in ((RECOVERY.uid, RECOVERY.user), (1002, "bob")):
            (mine,) = job_shapes(known, None, uid)
            assert (mine.uid, mine.user, [r.user for r in mine.recoveries]) == (uid, name, [name])
        (both,) = job_shapes(known, None, None)
        assert {r.user for r in both.recoveries} == {RECOVERY.user, "bob"}


def test_a_user_sees_nothing_of_the_job_that_has_the_id_now() -> None:
    shown = ("train", "bob", 1002, "", "gpu", "", "RUNNING", "", 0, True, True, 1, ("n9",), (), ())
    job, world = Job(JobKey("c", 7, T0), *shown), a_world()
    assert world.view is not None
    world = replace(world, view=replace(world.view, jobs={7: job}))
    (mine,) = job_shapes((RECOVERY,), world, RECOVERY.uid)
    assert (mine.user, mine.nodes, mine.state) == (RECOVERY.user, [], "")
    assert list(job_shapes((RECOVERY,), world, 1002)) == []


def test_a_user_reads_why_the_own_job_died_and_no_other_ones(served: Any) -> None:
    end = JobEnd(JobKey("c", 7, T0), 0, "ann", 1001, "train", ("n1",), "FAILED", "1:0", "", T0, T0, Reading.READ)
    long_ago = T0 - timedelta(days=9)
    older = replace(end, job=JobKey("c", 7, long_ago), uid=1002, user="bob", ended_at=long_ago)
    clue = Clue(Sign.EXCEPTION, "KeyError: 'x'")
    bug = replace(end, cause=Cause.CODE, text="the program ended with an error", clues=(clue,))
    served.commit(Change(ends=(bug, older, replace(older, job=JobKey("c", 8, T0)))))
    got = served.call("GET", "/v1/jobs/7/why", "1001").json()
    assert (got["user"], got["state"], [e["cause"] for e in got["ends"]]) == ("ann", "", ["users_code"])
    assert got["ends"][0]["clues"] == [{"sign": "exception", "line": "KeyError: 'x'", "node": ""}]
    assert (got["ends"][0]["again"], got["ends"][0]["advice"]) == (
        "not_known",
        "fix the program, then submit it again",
    )
    assert served.call("GET", "/v1/jobs/7/why").json() == got
    assert served.call("GET", "/v1/jobs/7/why?task=1", "1001").status_code == 404
    assert served.call("GET", "/v1/jobs/8/why", "1001").status_code == 404
    assert served.call("GET", "/v1/jobs/8/why").json()["user"] == "bob"
    assert served.call("GET", "/v1/jobs/9/why").status_code == 404


def test_metrics_count_incidents_opened_in_the_window(served: Any) -> None:
    served.commit(a_story())
    got = served.call("GET", "/v1/metrics?each=true").json()
    assert (got["incidents"], got["mttd"]["count"], got["mttr"]["p90"]) == (1, 1, None)
    assert got["mttr"]["mean"] == pytest.approx(3.5)
    assert got["lost_gpu_hours"] == pytest.approx(16 * 62 / 3600)
    assert got["each"][0]["incident_id"] == ID
    assert served.call("GET", "/v1/metrics?window_s=5").json()["incidents"] == 0


def test_prometheus_text(served: Any) -> None:
    served.world = a_world()
    text = served.call("GET", "/metrics").text
    assert 'holdfast_open_incidents{cluster="c",state="awaiting_human"} 1.0' in text
    assert 'holdfast_open_job_incidents{check="job.hung",cluster="c"} 0.0' in text
    assert "holdfast_heartbeats_total" in text
    assert 'holdfast_spares{cluster="c",state="not_ready"} 1.0' in text
    assert 'holdfast_lemons{cluster="c"} 0.0' in text
    assert "holdfast_spares_wanted{" not in text


def test_the_spare_pool_and_why(served: Any) -> None:
    assert served.call("GET", "/v1/spares").json()["reasons"] == ["the control loop has not turned yet"]
    world = a_world(nodes={"n2": NodeRecord("n2", "i-2", "b-2", checked_at=T0, check_note="dcgm.diag2 unknown")})
    policy = replace(world.policy, spares=replace(world.policy.spares, wanted=2))
    background = Background(T0, T0, lemons={"n2": Lemon(2, T0 + timedelta(days=1), ("2 faults",))}, short_since=T0)
    served.world = replace(world, policy=policy, background=background)
    got = served.call("GET", "/v1/spares").json()
    assert (got["wanted"], got["ready"], got["reasons"]) == (2, 0, ["spares.wanted = 2"])
    (spare,) = got["spares"]
    assert (spare["node"], spare["ready"], spare["lemon"], spare["under_test"]) == ("n2", False, True, False)
    assert spare["why"] == "its agent does not report; dcgm.diag2 unknown; a lemon: last choice"
    assert 'holdfast_spares_wanted{cluster="c"} 2.0' in served.call("GET", "/metrics").text


def test_one_node_with_its_history(served: Any) -> None:
    outages = (
        Outage("n1", "a", "i-1", "gpu.xid 79", T0 - timedelta(days=3), T0 - timedelta(days=2)),
        Outage("n1", "b", "i-1", "gpu.xid 48", T0 - timedelta(days=1), excused=True),
        Outage("n2", "c", "i-2", "gpu.xid 48", T0 - timedelta(days=1)),
    )
    background = Background(T0, T0, outages, {"n1": Lemon(1, None, ("1 fault in 28 days",))})
    served.world = replace(a_world(), background=background)
    got = served.call("GET", "/v1/nodes/n1").json()
    assert [(o["incident_id"], o["excused"]) for o in got["outages"]] == [("b", True), ("a", False)]
    assert (got["node"]["score"], got["node"]["lemon"], got["reasons"]) == (1, False, ["1 fault in 28 days"])
    assert served.call("GET", "/v1/nodes/n2").json()["reasons"] == []
    assert served.call("GET", "/v1/nodes/elsewhere").status_code == 404


class TestOperators:
    def test_pause_and_resume(self, served: Any) -> None:
        assert served.call("POST", "/v1/pause", json={"reason": "storage\nmove"}).json() == {
            "done": True,
            "incident": None,
        }
        assert served.store.load_book(T0).paused == "op: storage move"
        assert served.call("POST", "/v1/resume").status_code == 200
        assert served.store.load_book(T0).paused is None
        assert served.woken == 2

    @pytest.mark.parametrize(
        ("verb", "state"), [("acknowledge", "awaiting_human"), ("close", "closed"), ("retry", "repairing")]
    )
    def test_incidents(self, served: Any, verb: str, state: str) -> None:
        served.commit(a_story())
        answer = served.call("POST", f"/v1/incidents/{ID}/{verb}", json={"reason": "looked at it"})
        assert (answer.status_code, answer.json()["incident"]["state"]) == (200, state)
        events = served.call("GET", f"/v1/events?incident={ID}&kind=operator").json()["events"]
        assert (events[0]["detail"]["who"], events[0]["detail"]["reason"]) == ("op", "looked at it")

    @pytest.mark.parametrize("flags", [frozenset(), frozenset({"DRAIN"})], ids=["in service", "out"])
    def test_a_close_records_whether_the_node_serves(self, served: Any, flags: frozenset[str]) -> None:
        served.commit(a_story())
        node = Node("n1", "IDLE", flags)
        book = Book(incidents={ID: served.store.incident(ID)})
        served.world = World(T0, Policy(), book, ClusterView("c", T0, {"n1": node}, {}, {}))
        served.call("POST", f"/v1/incidents/{ID}/close")
        events = served.call("GET", f"/v1/events?incident={ID}&kind=node.returned").json()["events"]
        assert [e["detail"] for e in events] == ([] if flags else [{"by_others": True}])

    def test_what_does_not_fit(self, served: Any) -> None:
        served.commit(a_story())
        served.call("POST", f"/v1/incidents/{ID}/close")
        for path, status, code in (
            (f"/v1/incidents/{ID}/close", 409, "rejected"),
            ("/v1/incidents/0zzz/close", 404, "not_found"),
            ("/v1/brakes/drains/release", 404, "not_found"),
            ("/v1/brakes/drains@a@b/release", 404, "not_found"),
        ):
            answer = served.call("POST", path)
            assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)

    def test_a_brake_is_released(self, served: Any) -> None:
        served.commit(Change(brakes=(Brake(BrakeKind.DRAINS, T0, "too many"),)))
        assert served.call("POST", "/v1/brakes/drains/release").status_code == 200

    def test_the_brake_of_a_node_set_is_shown_on_its_nodes_and_released_by_its_name(self, served: Any) -> None:
        mine = Brake(BrakeKind.DRAINS, T0, "too many", None, "prod", "n[1-8]")
        served.commit(Change(brakes=(mine,)))
        served.world = a_world(brakes={mine.name: mine})
        (shown,) = served.call("GET", "/v1/nodes").json()["brakes"]
        assert (shown["kind"], shown["node_set"], shown["nodes"]) == ("drains@prod", "prod", "n[1-8]")
        assert "set 'prod' is no longer in the settings" in shown["reason"]
        assert served.call("POST", "/v1/brakes/drains%40prod/release").status_code == 200
        assert served.call("POST", "/v1/brakes/drains@prod/release").status_code == 404, "it is released already"


ROUTES = [
    ("GET", "/v1/status"),
    ("GET", "/v1/overview"),
    ("GET", "/v1/night"),
    ("GET", "/v1/saved"),
    ("GET", "/v1/names"),
    ("GET", "/v1/nodes"),
    ("GET", "/v1/nodes/n1"),
    ("GET", "/v1/nodes/health"),
    ("GET", "/v1/nodes/n1/health"),
    ("GET", "/v1/nodes/n1/history"),
    ("GET", "/v1/nodes/n1/sheet"),
    ("GET", "/v1/lemons"),
    ("POST", "/v1/nodes/n1/notes"),
    ("POST", "/v1/nodes/n1/drain"),
    ("POST", "/v1/nodes/n1/release"),
    ("POST", "/v1/nodes/n1/replace"),
    ("GET", "/v1/spares"),
    ("GET", "/v1/checks"),
    ("GET", "/v1/policy"),
    ("POST", "/v1/checks/what-if"),
    ("GET", "/v1/incidents"),
    ("GET", f"/v1/incidents/{ID}"),
    ("GET", f"/v1/incidents/{ID}/bundle"),
    ("GET", "/v1/jobs"),
    ("GET", "/v1/jobs/7/why"),
    ("GET", "/v1/actions"),
    ("GET", "/v1/events"),
    ("GET", "/v1/notices"),
    ("GET", f"/v1/stream?after_id={2**62}"),  # beyond the newest: an answer that ends
    ("GET", "/v1/metrics"),
    ("GET", "/metrics"),
    ("GET", "/metrics/cluster"),
    ("GET", "/openapi.json"),
    ("GET", "/v1/orders"),
    ("POST", "/v1/reports"),
    ("POST", "/v1/agent/room"),
    ("GET", "/v1/agent/self"),
    ("POST", "/v1/heartbeats"),
    ("POST", "/v1/pause"),
    ("POST", "/v1/resume"),
    ("POST", "/v1/brakes/drains/release"),
    ("GET", "/v1/maintenance"),
    ("POST", "/v1/maintenance"),
    ("POST", "/v1/maintenance/end"),
    ("GET", "/v1/suppressions"),
    ("POST", "/v1/suppressions"),
    ("DELETE", "/v1/suppressions/000000000000"),
    ("GET", "/v1/proposals"),
    ("POST", f"/v1/proposals/{PROPOSAL}/accept"),
    ("POST", f"/v1/proposals/{PROPOSAL}/dismiss"),
    ("POST", f"/v1/proposals/{PROPOSAL}/snooze"),
    ("POST", f"/v1/proposals/{PROPOSAL}/reopen"),
    ("GET", "/v1/budgets"),
    ("POST", "/v1/budgets/ended/extend"),
    ("POST", f"/v1/incidents/{ID}/acknowledge"),
    ("POST", f"/v1/incidents/{ID}/close"),
    ("POST", f"/v1/incidents/{ID}/retry"),
]
_AGENTS = {"/v1/orders", "/v1/reports", "/v1/heartbeats", "/v1/agent/room", "/v1/agent/self"}
ALLOWED = {
    "n1": {r for r in ROUTES if r[1] in _AGENTS | {"/openapi.json"}},
    "1001": {r for r in ROUTES if r[1] in ("/v1/jobs", "/v1/jobs/7/why", "/openapi.json")},
    "eve": {r for r in ROUTES if r[0] == "GET" and r[1] not in _AGENTS},
    "op": {r for r in ROUTES if r[1] not in _AGENTS},
    None: set(),
}
_FOR_ALL = ("POST", "/v1/enrol")
_PARAMETERS = {
    ID: "{incident_id}",
    "n1": "{name}",
    "drains": "{kind}",
    "ended": "{kind}",
    "7": "{job_id}",
    "000000000000": "{suppression_id}",
    PROPOSAL: "{proposal_id}",
}


def _named(path: str) -> str:
    return "/".join(_PARAMETERS.get(part, part) for part in path.partition("?")[0].split("/"))


@pytest.mark.parametrize("who", ALLOWED)
def test_who_may_do_what(served: Any, who: str | None) -> None:
    """Every route of the application, for every role: nothing is open but health."""
    paths = {(m.upper(), p) for p, ms in served.app.openapi()["paths"].items() for m in ms if not p.endswith("z")}
    named = {(m, _named(p)) for m, p in ROUTES if p != "/openapi.json"}
    assert paths == named | {_FOR_ALL}
    assert served.call(*_FOR_ALL, who).status_code == 404, (
        "the identity of a machine counts there, and no token; it is off here"
    )
    for method, path in ROUTES:
        status = served.call(method, path, who).status_code
        refused = 401 if who is None else 403
        assert (status != refused) == ((method, path) in ALLOWED[who]), (method, path, status)


class TestHealth:
    def test_all_well(self, served: Any) -> None:
        for path in ("/healthz", "/livez", "/readyz"):
            assert served.call("GET", path, None).json() == {"status": "ok"}

    def test_a_late_loop(self, served: Any) -> None:
        served.clock.passed_s = 100.0
        assert served.call("GET", "/healthz", None).status_code == 200
        for path, code in (("/livez", "loop_late"), ("/readyz", "not_ready")):
            answer = served.call("GET", path, None)
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, code)

    @pytest.mark.parametrize(
        ("change", "word"), [("away", "database"), ("standby", "does not lead"), ("young", "not turned")]
    )
    def test_not_ready(self, served: Any, change: str, word: str) -> None:
        served.store.away = change == "away"
        served.deps.leader = lambda: change != "standby"
        served.turned_at_s = None if change == "young" else served.clock.monotonic_s()
        answer = served.call("GET", "/readyz", None)
        assert answer.status_code == 503
        assert word in answer.json()["error"]["message"]

    @pytest.mark.parametrize(("leads", "trouble"), [(True, None), (False, "the last 9 cycles failed: disk full")])
    def test_a_store_that_takes_no_write(
        self, served: Any, leads: bool, trouble: str | None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It is read as before: the ping passes."""
        monkeypatch.setattr(served.deps, "leader", lambda: leads)
        monkeypatch.setattr(served.deps, "trouble", lambda: trouble)
        committed_s = served.clock.monotonic_s()
        monkeypatch.setattr(served.deps, "committed_at", lambda: committed_s)
        assert served.call("GET", "/readyz", None).status_code == (503 if trouble else 200)
        served.clock.passed_s = 16.0
        served.turned_at_s = served.clock.monotonic_s()
        answer = served.call("GET", "/readyz", None)
        text = "the store has taken no write for 16 s" + (f": {trouble}" if trouble else "")
        assert (answer.status_code, answer.json()["error"]["message"]) == (503, text)

    def test_another_one_leads_long_after_our_last_write(self, served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(served.deps, "leader", lambda: False)
        monkeypatch.setattr(served.deps, "committed_at", lambda: served.clock.monotonic_s() - 900.0)
        monkeypatch.setattr(served.deps, "led_by", lambda: "head2/ab")
        text = "this controller is a standby: head2/ab leads"
        assert served.call("GET", "/readyz", None).json()["error"]["message"] == text

    def test_steps_that_no_actor_takes(self, served: Any) -> None:
        watch = UntakenWatch()
        served.deps.untaken = watch
        text = "no actor takes steps (Drain n1)"
        watch.problem = lambda: text  # type: ignore[method-assign]
        watch.waits_s = 42.0
        answer = served.call("GET", "/readyz", None)
        assert (answer.status_code, answer.json()["error"]["message"]) == (503, text)
        assert served.call("GET", "/livez", None).status_code == 200
        assert served.call("GET", "/v1/nodes").json()["untaken"] == text
        assert "holdfast_steps_untaken_seconds 42.0" in served.call("GET", "/metrics").text

    def test_not_ready_while_turns_fail(self, served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        odd = Input(InputKind.JOB, "7", what="ann")
        monkeypatch.setattr(served.deps, "trouble", lambda: "the last 3 turns failed, nothing is decided: KeyError")
        monkeypatch.setattr(served.deps, "aside", lambda: (odd,))
        monkeypatch.setattr(unexpected, "standing", lambda: {"turn": "KeyError: 'n1'"})
        assert "3 turns failed" in served.call("GET", "/readyz", None).json()["error"]["message"]
        assert served.call("GET", "/livez", None).status_code == 200
        shown = served.call("GET", "/v1/nodes").json()
        assert shown["frozen"] == "the last 3 turns failed, nothing is decided: KeyError"
        assert (shown["failing"], shown["set_aside"]) == (["turn: KeyError: 'n1'"], ["job 7 (ann)"])
        metrics = served.call("GET", "/metrics").text
        assert 'holdfast_failing{part="turn"} 1.0' in metrics
        assert 'holdfast_inputs_set_aside{part="job"} 1.0' in metrics
        assert 'holdfast_inputs_set_aside{part="finding"} 0.0' in metrics


BAD = [
    ("GET", "/v1/nothing", None, 404, "not_found"),
    ("DELETE", "/v1/nodes", None, 405, "method_not_allowed"),
    ("GET", "/v1/incidents?limit=0", None, 422, "invalid"),
    ("GET", "/v1/incidents?since=yesterday", None, 422, "invalid"),
    ("GET", "/v1/incidents?since=9999-12-31T23:59:59-23:59", None, 422, "invalid"),
    ("GET", "/v1/incidents?node=a%00b", None, 422, "invalid"),
    ("GET", "/v1/incidents/NOPE", None, 422, "invalid"),
    ("GET", "/v1/incidents/0000", None, 404, "not_found"),
    ("GET", "/v1/events?after_id=99999999999999999999", None, 422, "invalid"),
    ("GET", "/v1/events?kind=party", None, 422, "invalid"),
    ("GET", "/v1/metrics?window_s=nan", None, 422, "invalid"),
    ("GET", "/v1/metrics?window_s=inf", None, 422, "invalid"),
    ("POST", "/v1/pause", b"{", 400, "malformed"),
    ("POST", "/v1/pause", b'{"raeson": "x"}', 422, "invalid"),
    ("POST", "/v1/pause", b"\xff", 400, "malformed"),
]


@pytest.mark.parametrize(("method", "path", "body", "status", "code"), BAD)
def test_one_error_shape(untouched: Any, method: str, path: str, body: bytes | None, status: int, code: str) -> None:
    answer = untouched.call(method, path, content=body, headers={"content-type": "application/json"})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], set(error)) == (status, code, {"code", "message", "field"})
    assert "\n" not in error["message"]


def test_a_bug_is_answered_in_the_same_shape(served: Any, caplog: pytest.LogCaptureFixture) -> None:
    served.deps.world = lambda: 1 / 0
    answer = served.call("GET", "/v1/nodes")
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal")
    assert "division" not in answer.text
    assert "division by zero" in caplog.text


def test_the_database_away(served: Any) -> None:
    served.call("GET", "/v1/incidents")
    served.store.away = True
    answer = served.call("GET", "/v1/incidents")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "unavailable")


@pytest.mark.slow
def test_what_an_order_tells_an_agent_alone_is_in_no_answer_to_people(served: Any) -> None:
    """Both sides of a pair probe receive a secret."""
    secret = "5b1e" * 16
    args = {"probe": "1", "role": "listen", "secret": secret}
    order = SendOrder("n1", "i-1", "b-1", Verb.PROBE_PAIR, 60.0, args)
    probe = Intent(f"{ID}/SendOrder/pair/n1.1/1", ID, order, "pair probe", 1, IntentState.PLANNED, at(-9))
    story = a_story()
    served.commit(replace(story, intents=(*story.intents, probe)))
    served.world = a_world(intents={probe.key: probe})
    paths = [path for path, verbs in served.call("GET", "/openapi.json").json()["paths"].items() if "get" in verbs]
    paths.remove("/v1/stream")  # it has no end, and shows what /v1/events does
    asked = 0
    for role in ("op", "eve"):
        for path in paths:
            for query in ("", "?all=true", f"?incident_id={ID}"):
                where = path.format(incident_id=ID, id=ID, number=1, job_id=7, name="n1", node="n1")
                answer = served.call("GET", where + query, role)
                asked += answer.status_code == 200
                assert secret not in answer.text, path
    assert asked > 20
    assert probe.key in served.call("GET", f"/v1/incidents/{ID}").text
