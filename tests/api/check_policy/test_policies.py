"""The policy of checks over the API: given with heartbeats by version, shown with who said what, and replayed."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from holdfast.api.check_policy import policies as module
from holdfast.api.check_policy.policies import acts_by
from holdfast.decisions.common.check_policy import checks_for
from holdfast.model.book import Book, Change, World
from holdfast.model.policies.node_sets import NodeSet
from holdfast.model.policies.policy import Mode, Policy
from holdfast.model.slurm.cluster import ClusterView, Node
from holdfast_checks.acting import CheckPolicy, Lists
from holdfast_checks.result import Remedy, Severity
from support.store_nouns import finding, incident, report

MARGIN = "gpu.temperature_margin_c"
QUIET = NodeSet(
    name="quiet", partitions=("debug",), observe_only=("gpu.xid",), thresholds={"gpu": {"temperature_margin_c": 2.0}}
)
POLICY = Policy(mode=Mode.ACT, nodes=(QUIET,), checks=CheckPolicy(Lists((), ("gpu.ecc",)), {MARGIN: 4}))
ENVELOPE = {"version": 1, "node": "n1", "instance_id": "i-1", "boot_id": "boot-1", "agent_version": "0.1.0"}


@pytest.fixture
def site(served: Any) -> Any:
    """n1 is in the node set, n2 is not."""
    nodes = {n: Node(n, "IDLE", frozenset(), partitions=(p,)) for n, p in (("n1", "debug"), ("n2", "train"))}
    now = served.clock.now()
    served.deps.policy = POLICY
    served.world = World(now, POLICY, Book(), ClusterView("c", now, nodes, {}, {}))
    return served


def beat(site: Any, node: str = "n1", **said: Any) -> dict[str, Any]:
    answer: dict[str, Any] = site.call("POST", "/v1/heartbeats", node, json={**ENVELOPE, "node": node, **said}).json()
    return answer


def version(site: Any, node: str) -> str:
    return checks_for(node, site.world.view.nodes[node], POLICY).version


def test_each_node_is_given_its_policy_until_it_has_it(site: Any) -> None:
    given = beat(site, checks_version="")["checks"]
    assert given == {
        "version": version(site, "n1"),
        "act_on": [],
        "observe_only": ["gpu.ecc", "gpu.xid"],
        "thresholds": {MARGIN: 2.0},
        "checks_off": [],
    }
    other = beat(site, "n2", checks_version="")["checks"]
    assert (other["observe_only"], other["thresholds"]) == (["gpu.ecc"], {MARGIN: 4})
    assert "checks" not in beat(site, checks_version=given["version"])
    assert beat(site, checks_version="another")["checks"] == given
    site.world = None
    assert "checks" not in beat(site, checks_version="another"), "Slurm is not read yet: the node keeps what it has"


def test_an_agent_of_an_earlier_release_gets_the_lists_of_its_node(site: Any) -> None:
    assert beat(site)["checks"] == {"act_on": [], "observe_only": ["gpu.ecc", "gpu.xid"]}


def test_who_has_an_older_policy_and_who_refused_it_is_shown(site: Any) -> None:
    beat(site, checks_version=version(site, "n1"), checks_refused="", act_on=[], observe_only=["gpu.ecc", "gpu.xid"])
    beat(site, "n2", checks_version="older", checks_refused="gpu: x\x1b[2J: 9 is not between 0 and 5", act_on=[])
    for path in ("/v1/checks", "/v1/policy"):
        got = site.call("GET", path, "eve").json()
        assert got["older"] == ["n2"]
        assert got["refused"] == {"n2": "gpu: x [2J: 9 is not between 0 and 5"}
    assert [each["node"] for each in site.call("GET", "/v1/checks", "eve").json()["others"]] == ["n2"]
    (part,) = (p for p in site.call("GET", "/v1/status", "eve").json()["parts"] if p["name"] == "agents")
    assert "1 go by an older policy of checks; 1 refused the policy of checks: n2" in part["text"]
    assert part["condition"] == "warning"
    agent = site.call("GET", "/v1/nodes/n2", "eve").json()["node"]["agents"][0]
    assert (agent["checks_version"], agent["checks_refused"][:4]) == ("older", "gpu:")


def test_nonsense_of_an_agent_about_its_policy_says_nothing(site: Any) -> None:
    assert "version" not in beat(site, checks_version=7, checks_refused={"a": 1})["checks"], "as of an earlier release"
    assert site.call("GET", "/v1/policy", "eve").json()["refused"] == {}


def test_the_policy_of_a_node_names_who_said_what(site: Any) -> None:
    beat(site, checks_version="older")
    got = site.call("GET", "/v1/policy?node=n1", "eve").json()
    assert (got["node"], got["version"], got["agent_version"]) == ("n1", version(site, "n1"), "older")
    assert got["policy"]["sets"] == ["quiet"]
    said = {(each["name"], each["value"], each["by"], each["counts"]) for each in got["said"]}
    assert said == {
        ("gpu.ecc", None, "[checks]", True),
        ("gpu.xid", None, "quiet", True),
        (MARGIN, 4, "[checks]", False),
        (MARGIN, 2, "quiet", True),
    }
    every = site.call("GET", "/v1/policy", "eve").json()
    assert (every["node"], every["version"], every["thresholds"]) == (None, POLICY.checks.version, {MARGIN: 4})
    assert len(every["said"]) == 4
    assert site.call("GET", "/v1/policy?node=n9", "eve").status_code == 404


def recorded(site: Any) -> None:
    """Two days ago gpu.nvlink observed a fault on n2, gpu.xid drained n1 and n2; a year ago n2 had one more."""
    now = site.clock.now()
    mild = {
        "severity": Severity.WARNING,
        "remedy": Remedy.NONE,
        "would_severity": Severity.FATAL,
        "would_remedy": Remedy.REBOOT,
    }
    found = [
        ("n2", "a1", 48, {"check": "gpu.nvlink", **mild}),
        ("n1", "b1", 47, {}),
        ("n2", "c1", 46, {}),
        ("n2", "d1", 9000, {"check": "gpu.nvlink", **mild}),
    ]
    for number, (node, name, hours, said) in enumerate(found, 1):
        at = now - timedelta(hours=hours)
        one = finding(node=node, received_at=at, fault_at=at, component=f"GPU-{number}", **said)
        site.store.accept_soon(report(number, node=node, received_at=at, findings=(one,))).result()
        site.commit(Change(incidents=(replace(incident(name), node=node, opened_at=at),), placed={number: name}))


def what_if(site: Any, **body: Any) -> dict[str, Any]:
    got: dict[str, Any] = site.call("POST", "/v1/checks/what-if", "op", json=body).json()
    return got


def lines(got: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    return [(f["node"], f["incident_id"], f["before"], f["after"]) for f in got["faults"]]


def test_what_if_every_check_acted(site: Any) -> None:
    recorded(site)
    got = what_if(site)
    assert (lines(got), got["replayed"], got["more"]) == ([("n2", "a1", "watched", "drained")], 3, False)
    assert got["faults"][0]["why"] == "gpu.nvlink would act"
    assert any("not stored" in note for note in got["notes"])
    since = (site.clock.now() - timedelta(days=400)).isoformat()
    assert [each[1] for each in lines(what_if(site, since=since))] == ["d1", "a1"]
    assert lines(what_if(site, act_on=["efa.count"])) == []


def test_what_if_a_file_was_in_force(site: Any) -> None:
    """It lets gpu.xid act on all nodes no more, and has no node set: n1's fault was recorded in full by an older agent."""
    recorded(site)
    tables = {
        "mode": {"mode": "act"},
        "checks": {"observe_only": ["gpu.xid"], "thresholds": {"gpu": {"temperature_margin_c": 9}}},
    }
    got = what_if(site, tables=tables)
    assert lines(got) == [("n2", "c1", "drained", "watched")]
    changes = {each["node"]: each["lines"] for each in got["changes"]}
    assert changes["n2"] == ["observe_only: +gpu.xid -gpu.ecc", f"{MARGIN}: 4 → 9"]
    assert changes["n1"] == ["observe_only: -gpu.ecc", f"{MARGIN}: 2 → 9"]
    assert any("thresholds are not replayed" in note for note in got["notes"])


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"act_on": ["gpu.nvlnk"]}, "act_on: no check is called 'gpu.nvlnk'; did you mean 'gpu.nvlink'?"),
        ({"observe_only": ["*"]}, "observe_only: no check is called '*'"),
        ({"tables": {"checks": {"act": []}}}, "checks: unknown key 'act'"),
        ({"tables": {"server": {"port": 1}}}, "unknown key 'server'"),
        (
            {"tables": {"nodes": [{"name": "x", "nodes": "n1", "thresholds": {"gpu": {"x": 1}}}]}},
            "'gpu.x' cannot be set here",
        ),
        ({"tables": {"checks": 1}}, "checks: expected a table"),
        ({"tables": {"mode": {"mode": ["act"]}}}, "mode"),
    ],
)
def test_a_wrong_policy_is_refused_in_one_line(site: Any, body: dict[str, Any], why: str) -> None:
    answer = site.call("POST", "/v1/checks/what-if", "op", json=body)
    assert answer.status_code == 422
    assert why in answer.json()["error"]["message"]


def test_more_findings_than_are_read_are_named(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_FINDINGS", 2)
    recorded(site)
    got = what_if(site)
    assert (got["replayed"], got["more"], lines(got)) == (2, True, [])


@pytest.mark.parametrize(
    ("check", "lists", "acts"),
    [
        ("gpu.xid", Lists(), True),
        ("gpu.xid", Lists((), ("gpu.xid",)), False),
        ("gpu.nvlink", Lists(), False),
        ("gpu.nvlink", Lists(("*",)), True),
        ("custom.widget", Lists(), False),
        ("custom.widget", Lists(("custom.widget",)), True),
        ("agent.outbox", Lists(), True),
        ("agent.outbox", Lists((), ("agent.outbox",)), False),
    ],
)
def test_which_checks_act_by_the_lists(check: str, lists: Lists, acts: bool) -> None:
    assert acts_by(check, CheckPolicy(lists)) is acts
    assert not acts_by(check, CheckPolicy(lists, off=(check,)))


def test_checks_that_are_off_are_shown_with_the_agents_that_cannot_switch_them_off(site: Any) -> None:
    quiet = replace(POLICY.nodes[0], checks_off=("gpu.count",))
    site.deps.policy = replace(POLICY, nodes=(quiet,), checks=replace(POLICY.checks, off=("host.disk",)))
    assert beat(site, checks_version="")["checks"]["checks_off"] == ["host.disk", "gpu.count"]
    beat(site, checks_version="x", checks_off=["host.disk", "gpu.count"], act_on=[])
    beat(site, "n2", checks_version="x", act_on=[])
    for path in ("/v1/checks", "/v1/policy"):
        got = site.call("GET", path, "eve").json()
        assert (got["checks_off"], got["never_off"]) == (["host.disk"], ["n2"])
    modes = {c["id"]: (c["off"], c["acts"]) for c in site.call("GET", "/v1/checks", "eve").json()["checks"]}
    assert modes["host.disk"] == (True, False)
    said = site.call("GET", "/v1/policy?node=n1", "eve").json()["said"]
    assert {(s["name"], s["what"], s["by"]) for s in said} >= {
        ("gpu.count", "off", "quiet"),
        ("gpu.xid", "observes", "quiet"),
    }


def test_what_if_a_check_were_off(site: Any) -> None:
    recorded(site)
    got = what_if(site, checks_off=["gpu.xid"])
    assert {(f["node"], f["before"], f["after"], f["why"]) for f in got["faults"]} >= {
        ("n2", "drained", "watched", "gpu.xid would be off")
    }
    refused = site.call("POST", "/v1/checks/what-if", "op", json={"checks_off": ["gpu.xd"]})
    assert refused.status_code == 422
    assert "no check is called 'gpu.xd'; did you mean 'gpu.xid'?" in refused.text
