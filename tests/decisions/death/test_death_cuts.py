"""Part of the management network is down for a minute while its nodes train on: no healthy node is affected.

The shipped defaults, in ``act``."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.controller.observing.head_reach import HeadReached
from holdfast.controller.timing import pace
from holdfast.model.actions.action import Intent, SendOrder, Verb
from holdfast.model.agents.report import OrderOutcome
from holdfast.model.incidents.incident import IncidentState
from holdfast.model.machine import Instance, ProviderCan
from support.simulated import Machine, Site, agents
from support.simulated.network import back, cut
from support.simulated.provider import FULL, IN_PLACE
from support.simulated.site import POLICY
from support.simulated.slurm import SimJob

BLIND = replace(FULL, status=False)


@pytest.fixture(autouse=True)
def _shipped_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """Timings that the controller gives to a fleet of this size."""
    monkeypatch.setattr(agents, "HEARTBEAT_S", pace.interval_s(1000))


def train(site: Site, *, size: int = 2) -> list[SimJob]:
    """A job on every ``size`` nodes: of three one opted in and is fenced, one opted in, one did not."""
    jobs = []
    for number in range(len(site.slurm.nodes) // size):
        comment = "" if number % 3 == 2 else "holdfast"
        job = site.slurm.submit(size, comment=comment, exclusive=True)
        if number % 3 == 0:
            site.agents.state(
                site.machine(job.nodes[0]), "checkpoint.register", job.job_id, 0, path="/ckpt", detail={"fenced": True}
            )
        jobs.append(job)
    site.run(2)
    return jobs


def hurt(site: Site, jobs: list[SimJob]) -> dict[str, object]:
    """All actions on healthy nodes and on jobs that trained on; must be empty."""
    calls = {verb: sorted(n for v, n in site.slurm.calls if v == verb) for verb in ("set_down", "requeue")}
    return {
        what: found
        for what, found in {
            **calls,
            "stopped": [j.job_id for j in jobs if j.state != "RUNNING" or j.restarts],
            "terminated": sorted(site.provider.terminated),
            "cycled": sorted(site.provider.cycled),
            "launched": sorted(site.provider.tokens),
        }.items()
        if found
    }


SIZES = [
    (16, 2),
    (16, 3),
    (16, 4),
    (100, 3),
    (100, 10),
    *(pytest.param(*size, marks=pytest.mark.slow) for size in ((400, 4), (1000, 100))),
]


@pytest.mark.sampled
@pytest.mark.parametrize(("nodes", "away"), SIZES)
@pytest.mark.parametrize(
    "can",
    [FULL, BLIND, IN_PLACE],
    ids=["launches beside", "blind", "in place"],  # word: a test's id
)
def test_part_of_the_management_network_away_for_a_minute_hurts_nobody(nodes: int, away: int, can: object) -> None:
    site = Site(nodes, can=can)  # type: ignore[arg-type]
    jobs = train(site)
    cut(site, *(f"n{n}" for n in range(3, 3 + away)))
    site.run(60)
    assert hurt(site, jobs) == {}
    back(site)
    site.run(120, step_s=2)
    assert hurt(site, jobs) == {}
    assert site.store.incidents(only_open=True) == ()
    assert not [n.name for n in site.slurm.nodes.values() if n.drain or n.down]


@pytest.mark.parametrize("away", [4, 5])
def test_idle_nodes_of_an_in_place_provider_are_not_exchanged(away: int) -> None:
    site = Site(20, can=IN_PLACE)
    cut(site, *(f"n{n}" for n in range(1, 1 + away)))
    site.run(60)
    back(site)
    site.run(200, step_s=2)
    assert hurt(site, []) == {}
    assert not [n.name for n in site.slurm.nodes.values() if n.drain or n.down]


def test_twenty_idle_nodes_cut_from_a_fleet_are_not_exchanged() -> None:
    site = Site(100, can=IN_PLACE)
    cut(site, *(f"n{n}" for n in range(1, 21)))
    site.run(120)
    assert hurt(site, []) == {}
    back(site)
    site.run(120, step_s=2)
    assert hurt(site, []) == {}


def test_the_last_nodes_of_a_cut_that_ends_are_not_judged_alone() -> None:
    """The cut ends for all but two: what the peers reported about these is valid if it had one cause."""
    site = Site(16, can=BLIND)
    jobs = train(site)
    cut(site, "n3", "n4", "n5", "n6", "n7")
    site.run(60)
    back(site, "n5", "n6", "n7")
    site.run(200, step_s=2)
    assert hurt(site, jobs) == {}
    assert not [n.name for n in site.slurm.nodes.values() if n.drain or n.down]


def _says(site: Site, words: str) -> list[str]:
    return [subject for subject in site.notices.sent if words in subject]


def test_an_operator_is_told_once_of_many_nodes_and_that_their_job_advances() -> None:
    site = Site(100)
    site.slurm.submit(20, exclusive=True)
    cut(site, *(f"n{n}" for n in range(3, 13)))
    for step in range(1, 121):
        site.agents.state(site.machine("n1"), "progress", 100, 0, step=step)
        site.run(1)
    assert _says(site, "do not report") == ["10 nodes of 10.0.0.0/24 do not report; their job advances"]
    assert "one cause" in site.incident("n3").note


def test_a_node_whose_job_advances_elsewhere_lives_whatever_its_peers_say() -> None:
    site = Site(16)
    job = train(site, size=4)[0]
    cut(site, "n3")
    for step in range(1, 201):
        site.agents.state(site.machine("n1"), "progress", job.job_id, 0, step=step)
        site.run(1)
    assert "advances on its other nodes: it lives" in site.incident("n3").note
    assert hurt(site, [job]) == {}
    assert not site.slurm.nodes["n3"].drain


@pytest.mark.parametrize(
    ("domains", "addresses"),
    [
        ({"n[1-2,4-16]": "a", "n3": "alone"}, {}),
        ({"n[3-6]": "rack 1", "n[1-2,7-16]": "rack 2"}, {}),
        ({}, {f"n{n}": f"host{n}" for n in range(1, 17)}),
    ],
    ids=["the only one", "none of its peers lives", "unknown"],
)
def test_without_a_witness_of_its_domain_nothing_is_concluded(
    domains: dict[str, str], addresses: dict[str, str]
) -> None:
    policy = replace(POLICY, death=replace(POLICY.death, domains=domains))
    site = Site(16, can=BLIND, policy=policy)
    site.slurm.addresses = addresses
    site.run(5)
    away = ["n3", "n4", "n5", "n6"][: 4 if len(set(domains.values())) == 2 and "n[3-6]" in domains else 1]
    jobs = train(site)
    cut(site, *away)
    site.run(200)
    assert {site.incident(n).state for n in away} == {IncidentState.SUSPECTED}
    assert hurt(site, jobs) == {}
    assert len([s for s in site.notices.sent if "not report" in s]) >= 1


def test_a_rack_whose_provider_says_off_heals_by_itself_above_the_brake() -> None:
    site = Site(64, spares=tuple(f"n{n}" for n in range(57, 65)))
    jobs = train(site, size=8)
    for n in range(1, 9):
        site.machine(f"n{n}").powered = False
    site.run(60)
    assert all(site.incident(f"n{n}").dead for n in range(1, 9))
    assert (jobs[0].state, jobs[0].restarts) == ("RUNNING", 1)
    assert site.book.brakes == {}, "power that is off is no check's finding"
    site.run(3 * 3600, step_s=20)
    still = [(i.node, i.state.value, i.note) for i in site.store.incidents(only_open=True)]
    assert still == [], still


@pytest.mark.parametrize("rung", ["same boot", "after the launch"])
def test_a_node_that_reports_again_is_returned_until_its_machine_is_touched(rung: str) -> None:
    site = Site(16, can=BLIND)
    job = train(site)[0]
    cut(site, "n1")
    site.run(60)
    assert ("set_down", "n1") in site.slurm.calls, "dead by two peers, its job consents and is fenced"
    if rung == "after the launch":
        while not site.provider.tokens:
            site.run(10, step_s=5)
        assert site.clock.elapsed_s > 900
    back(site)
    site.run(300, step_s=2)
    assert site.incident("n1").state is IncidentState.CLOSED, site.story()
    assert site.machine("n1").instance_id == "i-0001"
    assert site.provider.terminated["i-0001"] == 0
    assert site.provider.candidates() == set()
    assert not site.slurm.nodes["n1"].drain
    assert (job.state, job.restarts) == ("RUNNING", 1)


def test_an_idle_silent_node_is_drained_at_once_and_its_machine_waits() -> None:
    site = Site(8, can=IN_PLACE)
    cut(site, "n3")
    site.run(60)
    assert site.slurm.nodes["n3"].drain
    assert hurt(site, []) == {}
    site.run(800, step_s=5)
    assert hurt(site, []) == {}
    site.run(900, step_s=5)
    assert set(hurt(site, [])) == {"cycled"}, "the provider shows it running: it is rebooted, not ended"


def test_slurmctld_that_is_silent_freezes_everything() -> None:
    site = Site(16, can=BLIND)
    jobs = train(site)
    site.slurm.away = True
    cut(site, "n1")
    before = list(site.slurm.calls)
    site.run(150)
    assert _says(site, "slurmctld") == [], "the controller sends its own page (test_pager.py)"
    assert (site.slurm.calls, site.provider.tokens) == (before, {})
    assert hurt(site, jobs) == {}


def test_what_slurmctld_shows_right_after_its_return_is_not_taken_over() -> None:
    site = Site(16, can=BLIND)
    site.slurm.away = True
    site.run(60)
    site.slurm.away = False
    node = site.slurm.nodes["n5"]
    node.down, node.reason, node.user, node.time = True, "Not responding", "slurm", site.clock.now()
    site.fault("n5")
    site.run(200, step_s=5)
    assert [c for c in site.slurm.calls if c[1] == "n5"] == []
    site.run(200, step_s=5)
    assert ("drain", "n5") in site.slurm.calls


@pytest.mark.parametrize("can", [replace(IN_PLACE, reboot=False), IN_PLACE], ids=["no reboot", "the reboot fails"])
def test_a_silent_machine_that_its_provider_shows_running_is_left_to_an_operator_and_never_ended(
    can: ProviderCan,
) -> None:
    """Two peers of its domain, 15 minutes: it is rebooted, where possible; an operator decides whether to terminate it."""
    site = Site(16, can=can)
    site.provider.boot_s = 1e9  # what is rebooted never reports
    cut(site, "n3")
    site.run(3 * 3600, step_s=10)
    assert site.incident("n3").state is IncidentState.AWAITING_HUMAN, site.story()
    assert set(hurt(site, [])) <= {"cycled"}
    assert _says(site, "n3 needs an operator")
    machine = site.machine("n3")
    back(site)
    machine.boots_at_s = 0.0
    site.run(300, step_s=5)
    assert site.incident("n3").state in (IncidentState.CLOSED, IncidentState.AWAITING_HUMAN)


def test_a_node_that_is_set_down_is_not_drained_besides() -> None:
    site = Site(16, can=BLIND)
    train(site)
    site.machine("n1").powered = False
    site.run(60)
    assert [verb for verb, name in site.slurm.calls if name == "n1"] == ["set_down"]
    assert [i.key for i in site.store.intents() if i.kind == "Drain"] == []


@pytest.mark.parametrize("order", [Verb.VALIDATE, Verb.CHECK])
def test_what_is_left_of_a_job_on_a_node_that_reports_again_is_waited_for_and_no_fault(
    order: Verb, monkeypatch: pytest.MonkeyPatch
) -> None:
    """slurmd ends the old run only once slurmctld orders it to, seconds after the node reports."""
    site = Site(16, can=BLIND)
    train(site)
    cut(site, "n1")
    site.run(60)
    assert ("set_down", "n1") in site.slurm.calls
    free_at_s = site.clock.elapsed_s + 40
    plain = site.agents._carry_out

    def held(machine: Machine, given: Intent) -> OrderOutcome:
        assert isinstance(given.action, SendOrder)
        if given.action.verb is not order or site.clock.elapsed_s >= free_at_s:
            return plain(machine, given)
        detail = {"jobs": [100]} if order is Verb.VALIDATE else {"outcome": "held", "held": "job 100"}
        return OrderOutcome(given.key, False, "jobs are on the node: 100", site.clock.now(), detail)

    monkeypatch.setattr(site.agents, "_carry_out", held)
    back(site)
    site.run(200, step_s=2)
    assert site.incident("n1").state is IncidentState.CLOSED, site.story()
    assert site.provider.tokens == {}


@pytest.mark.parametrize("off", [True, False], ids=["seen off", "not seen off"])
def test_what_answers_for_a_machine_that_is_seen_off_is_the_one_that_took_its_place(off: bool) -> None:
    """The new machine has the node's address before the old one is ended."""
    site = Site(16)
    site.machine("n3").powered = False
    site.run(60)
    assert site.incident("n3").dead
    before = site.provider.instance

    def running(instance_id: str) -> Instance:
        shown = before(instance_id)
        return replace(shown, state="running") if instance_id == "i-0003" else shown

    if not off:
        site.provider.instance = running  # type: ignore[method-assign]
    site.actor.outside = replace(site.actor.outside, reach=lambda targets, _s: HeadReached(frozenset(targets)))
    site.run(600, step_s=5)
    assert (site.provider.terminated["i-0003"], site.incident("n3").open) == ((1, False) if off else (0, True))
