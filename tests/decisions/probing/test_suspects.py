"""A job fails without a finding that explains it: its nodes are probed in pairs, and only the faulty one is taken out of service."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.decisions.probing.suspects import UNEXPLAINED
from holdfast.model.actions.action import SendOrder, Verb
from holdfast.model.incidents.incident import Incident, IncidentState
from holdfast.model.policies.policy import Mode, Policy
from holdfast_checks.result import Remedy, Severity
from support.simulated import Site
from support.simulated.site import POLICY
from support.simulated.slurm import SimJob

_S = IncidentState


def job_on(site: Site, nodes: int, **changed: object) -> SimJob:
    job = site.slurm.submit(nodes, **{"comment": "holdfast", "exclusive": True, **changed})
    site.run(2)
    assert job.state == "RUNNING"
    return job


def with_suspects(**changed: object) -> Policy:
    return replace(POLICY, suspects=replace(POLICY.suspects, **changed))  # type: ignore[arg-type]


def fails(site: Site, job: SimJob, state: str = "FAILED", seconds: float = 40) -> None:
    site.slurm.finish(job, state)
    site.run(seconds)


def inquiry(site: Site) -> Incident:
    return next(i for i in site.store.incidents() if i.check == UNEXPLAINED)


def convicted(site: Site) -> list[str]:
    return sorted(i.node for i in site.store.incidents() if i.check == "probe.pair")


def drained(site: Site) -> set[str]:
    return {node for _, node, _ in site.slurm.drained}


def test_the_one_node_with_the_broken_path_is_found_and_nobody_else_is_touched() -> None:
    site = Site(6)
    job = job_on(site, 4)
    site.machine("n3").path_broken = True
    fails(site, job)
    (bad,) = (i for i in site.store.incidents() if i.check == "probe.pair")
    assert (bad.node, bad.severity, bad.remedy) == ("n3", Severity.DEGRADED, Remedy.REBOOT)
    assert bad.state not in (_S.WATCHING, _S.OPEN)
    assert drained(site) == {"n3"}
    asked = inquiry(site)
    assert (asked.state, asked.suspects) == (_S.CLOSED, ("n1", "n2", "n3", "n4"))
    assert asked.note == "pair probe: failed: n3; cleared: n1,n2,n4"
    assert len(site.agents.probes.pairs) <= 5
    assert "failed with" in bad.headline
    assert f"job {job.job_id}" in bad.headline


def test_the_job_starts_again_off_the_node_that_was_convicted() -> None:
    site = Site(6, spares=("n6",))
    job = job_on(site, 4)
    site.machine("n3").path_broken = True
    fails(site, job)
    assert (job.state, job.restarts) == ("RUNNING", 1)
    assert "n3" not in job.nodes
    assert job.excluded == ("n3",)


def test_when_every_path_is_good_nobody_is_blamed() -> None:
    site = Site(4)
    fails(site, job_on(site, 3))
    assert inquiry(site).note == "pair probe: cleared: n1,n2,n3"
    assert (convicted(site), drained(site)) == ([], set())
    probes = len(site.agents.probes.pairs)
    site.run(900, step_s=5)
    assert len(site.agents.probes.pairs) == probes, "a job's failure is looked into once"


def test_two_nodes_and_no_third_are_not_told_apart() -> None:
    site = Site(2)
    job = job_on(site, 2)
    site.machine("n1").path_broken = True
    fails(site, job)
    assert inquiry(site).note == "pair probe: not known: n1,n2"
    assert drained(site) == set()


@pytest.mark.parametrize("liar", ["n1", "n3"])
def test_a_liar_gets_no_healthy_neighbour_convicted(liar: str) -> None:
    """One agent reports that its probes with n2 fail, and passes with all others."""
    site = Site(5)
    job = job_on(site, 3)
    site.machine(liar).spoils_probes_with = {"n2"}
    fails(site, job, seconds=60)
    assert (convicted(site), drained(site)) == ([], set())
    assert inquiry(site).note == "pair probe: cleared: n1,n2,n3"


@pytest.mark.slow
def test_a_liar_that_is_the_only_partner_gets_nobody_convicted_and_an_operator_is_told() -> None:
    """n3 passes with the liar and is busy from then on: n2 has no other partner."""
    site = Site(4)
    busy = job_on(site, 1)
    job = job_on(site, 3)
    assert busy.nodes == ("n1",)
    site.machine("n4").spoils_probes_with = {"n2", "n3"}
    site.machine("n2").spoils_probes_with = {"n3"}
    fails(site, job, seconds=700)
    assert (convicted(site), drained(site)) == ([], set())
    assert inquiry(site).state is _S.CLOSED
    told = [body for subject, body in site.notices.bodies if UNEXPLAINED in subject]
    assert len(told) == 1
    assert "n2" in told[0]
    assert "does not know which side is at fault" in told[0]


def test_a_busy_third_is_waited_for() -> None:
    site = Site(3)
    job = job_on(site, 2)
    other = job_on(site, 1)
    site.machine("n1").path_broken = True
    fails(site, job)
    assert inquiry(site).state is _S.WATCHING
    site.slurm.finish(other, "COMPLETED")
    site.run(30)
    assert (convicted(site), drained(site)) == (["n1"], {"n1"})


@pytest.mark.parametrize(
    ("changed", "state"),
    [({"comment": ""}, "FAILED"), ({}, "COMPLETED"), ({}, "CANCELLED"), ({}, "TIMEOUT")],
)
def test_only_a_job_that_opted_in_and_failed(changed: dict[str, object], state: str) -> None:
    site = Site(4)
    fails(site, job_on(site, 3, **changed), state)
    assert site.store.incidents() == ()


def test_a_job_of_one_node_has_nothing_to_probe() -> None:
    site = Site(4)
    fails(site, job_on(site, 1))
    assert site.store.incidents() == ()


def test_a_finding_explains_the_failure() -> None:
    site = Site(4)
    job = job_on(site, 3, requeue=False)
    site.fault("n2", code="31", remedy=Remedy.RESTART_JOB)
    fails(site, job)
    assert [i.check for i in site.store.incidents()] == ["gpu.xid"]
    assert site.agents.probes.pairs == []


def test_a_finding_that_comes_later_ends_the_inquiry() -> None:
    site = Site(3, policy=with_suspects(wait_s=5.0))
    job, other = job_on(site, 2), job_on(site, 1)
    site.machine("n1").path_broken = True
    fails(site, job, seconds=12)
    assert inquiry(site).state is _S.WATCHING
    site.fault("n2")
    site.run(3)
    site.slurm.finish(other, "COMPLETED")
    assert inquiry(site).state is _S.CLOSED
    assert inquiry(site).note.startswith("explained by incident")
    site.run(30)
    assert convicted(site) == []


@pytest.mark.slow
def test_a_node_that_a_job_has_taken_is_not_asked() -> None:
    site = Site(4)
    job = job_on(site, 3)
    site.slurm.finish(job, "FAILED")
    site.run(3)
    after = site.slurm.submit(2, exclusive=True)
    site.run(60)
    assert after.state == "RUNNING"
    assert not {n for pair in site.agents.probes.pairs for n in pair} & set(after.nodes)
    assert inquiry(site).state is _S.WATCHING
    site.run(700, step_s=5)
    assert inquiry(site).state is _S.CLOSED


@pytest.mark.slow
def test_most_nodes_failing_is_one_cause_and_a_human_is_told() -> None:
    site = Site(8)
    job = job_on(site, 4)
    for name in ("n1", "n2", "n3"):
        site.machine(name).path_broken = True
    fails(site, job, seconds=90)
    assert drained(site) == set()
    assert "most of its nodes" in inquiry(site).note
    assert len([text for text in site.notices.sent if UNEXPLAINED in text]) == 1


def test_never_more_than_its_share_of_the_cluster_at_once() -> None:
    site = Site(20, policy=with_suspects(cluster_share=0.2))
    job = job_on(site, 16)
    at_once: list[int] = []

    def busy() -> int:
        waiting = [i for i in site.book.intents.values() if isinstance(i.action, SendOrder) and not i.settled]
        return len({i.action.node for i in waiting if isinstance(i.action, SendOrder)})

    site.at_boundary = lambda _intent, _moment: None
    site.slurm.finish(job, "FAILED")
    begin = site.agents.probes.begin

    def watched(machine: object, order: object) -> object:
        at_once.append(busy())
        return begin(machine, order)  # type: ignore[arg-type]

    site.agents.probes.begin = watched  # type: ignore[method-assign, assignment]
    site.run(40)
    assert inquiry(site).state is _S.CLOSED
    assert max(at_once) <= 4


def test_observe_mode_records_and_probes_nobody() -> None:
    site = Site(4, policy=replace(POLICY, mode=Mode.OBSERVE))
    job = job_on(site, 3)
    site.machine("n1").path_broken = True
    fails(site, job)
    assert site.agents.probes.pairs == []
    withheld = [i for i in site.store.intents() if isinstance(i.action, SendOrder)]
    assert withheld
    assert {i.state.value for i in withheld} == {"withheld"}


def test_a_site_may_switch_it_off() -> None:
    site = Site(4, policy=with_suspects(probe=False))
    fails(site, job_on(site, 3))
    assert site.store.incidents() == ()


def test_a_restart_of_the_controller_neither_repeats_nor_loses_an_inquiry() -> None:
    site = Site(4)
    job = job_on(site, 3)
    site.machine("n2").path_broken = True
    site.slurm.finish(job, "FAILED")
    for _ in range(60):
        site.run(1)
        if len(site.agents.probes.pairs) == 1:
            break
    site.start_controller()
    site.run(90)
    assert convicted(site) == ["n2"]
    keys = [i.key for i in site.store.intents() if isinstance(i.action, SendOrder) and i.action.verb is Verb.PROBE_PAIR]
    assert len(keys) == len(set(keys)) == 2 * len(site.agents.probes.pairs)


def secrets_of(site: Site) -> dict[str, set[str]]:
    """By the probe's name, the arguments of its two sides."""
    found: dict[str, set[str]] = {}
    for intent in site.store.intents():
        if isinstance(intent.action, SendOrder) and intent.action.verb is Verb.PROBE_PAIR:
            tag = f"{intent.incident_id}/{intent.action.args['probe']}"
            found.setdefault(tag, set()).add(str(intent.action.args["secret"]))
    return found


def story_with_a_probed_failure() -> Site:
    site = Site(4)
    job = job_on(site, 3)
    site.machine("n2").path_broken = True
    fails(site, job)
    assert convicted(site) == ["n2"]
    return site


def test_each_probe_has_a_secret_of_its_own_that_nothing_known_leads_to() -> None:
    site = story_with_a_probed_failure()
    told = secrets_of(site)
    assert len(told) > 1
    assert {len(both) for both in told.values()} == {1}, "both sides of a probe get the same arguments"
    drawn = [next(iter(both)) for both in told.values()]
    assert len(set(drawn)) == len(drawn)
    assert all(len(secret) == 64 and tag.split("/")[0] not in secret for tag, (secret,) in told.items())
    assert secrets_of(story_with_a_probed_failure()) == told, "the same chance: a test can be repeated"
    other = Site(4)
    other._drawn = 1_000_000
    job = job_on(other, 3)
    other.machine("n2").path_broken = True
    fails(other, job)
    assert not set(drawn) & {next(iter(both)) for both in secrets_of(other).values()}


def test_no_secret_of_a_probe_gets_into_what_people_are_told() -> None:
    site = story_with_a_probed_failure()
    drawn = [secret for both in secrets_of(site).values() for secret in both]
    intents = [(i.key, i.reason, i.outcome, i.result) for i in site.store.intents()]
    told = repr((site.store.incidents(), site.store.events(), site.notices.bodies, intents))
    assert "probe" in told
    assert not [secret for secret in drawn if secret in told]


def test_without_chance_nobody_is_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Site, "_draw", lambda _site: "")
    site = Site(4)
    job = job_on(site, 3)
    site.machine("n2").path_broken = True
    fails(site, job)
    assert site.agents.probes.pairs == []


def test_a_limit_on_the_hour() -> None:
    site = Site(4, policy=with_suspects(jobs_per_hour=2))
    for _ in range(3):
        fails(site, job_on(site, 2))
    assert len(site.store.incidents()) == 2
