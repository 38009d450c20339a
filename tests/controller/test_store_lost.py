"""The store is lost, or replaced by an older one, while steps are in flight: nothing is done twice, and an operator decides."""

from __future__ import annotations

import copy
from dataclasses import replace
from datetime import timedelta

import pytest

from holdfast.decisions.machines.orphans import GRACE_S, orphans
from holdfast.model.actions.action import Assign, Intent, IntentState, Notify, Terminate
from holdfast.model.book import Book, NodeRecord, World
from holdfast.model.errors import Unavailable
from holdfast.model.incidents.incident import Incident, IncidentState
from holdfast.model.machine import Instance, ProviderView
from holdfast.model.policies.policy import Mode, Policy
from holdfast_checks.result import Remedy, Severity
from support.simulated import EPOCH, MemoryStore, Site
from support.simulated.provider import FULL

_S = IncidentState
INCIDENT = "1kjmmb3pg001"


def lose(site: Site, store: MemoryStore | None = None) -> None:
    """Restart both processes with another store."""
    site.store = store or MemoryStore()
    site.agents._store = site.store
    site.start_controller()
    site.start_actor()


def in_the_middle() -> Site:
    """n1's replacement is launched and boots; the affected job runs again elsewhere."""
    site = Site(3)
    site.slurm.submit(1, comment="holdfast", exclusive=True)
    site.run(2)
    site.fault("n1")
    site.run(10)
    assert site.incident("n1").state is _S.REPAIRING
    assert len(site.provider.candidates()) == 1
    return site


def test_a_lost_store_pauses_and_doubles_nothing() -> None:
    site = in_the_middle()
    job, launched, lost = site.slurm.jobs[100], site.provider.candidates(), site.incident("n1").id
    calls = list(site.slurm.calls)
    lose(site)
    site.run(900, step_s=10)
    assert "Slurm shows drains of Holdfast's that this store has no record of: n1" in (site.book.paused or "")
    assert (site.incident("n1").id, site.incident("n1").state) == (lost, _S.AWAITING_HUMAN)
    assert any(text.startswith("n1 needs an operator") for text in site.notices.sent)
    assert (site.provider.candidates(), len(site.provider.tokens), site.provider.terminated) == (launched, 1, {})
    assert (job.state, job.restarts) == ("RUNNING", 1)
    assert site.slurm.calls == calls


def test_a_human_puts_the_node_back_and_what_was_launched_for_it_goes() -> None:
    site = in_the_middle()
    launched = site.provider.candidates()
    lose(site)
    site.run(60, step_s=5)
    site.operate("resume")
    site.run(60, step_s=5)
    assert site.book.paused is None, "once an operator has looked it is not paused again"
    assert site.provider.candidates() == launched, "its incident is open"
    site.slurm.operator_resumes("n1")
    site.run(GRACE_S - 120, step_s=20)
    assert site.provider.candidates() == launched, "not at once"
    site.run(300, step_s=20)
    assert (site.provider.candidates(), dict(site.provider.terminated)) == (set(), dict.fromkeys(launched, 1))
    assert site.incident("n1").state is _S.CLOSED


def test_an_older_store_pauses_too() -> None:
    site = Site(3)
    site.fault("n2")
    site.run(300, step_s=5)
    assert isinstance(site.store, MemoryStore)
    backup = copy.deepcopy(site.store)
    site.fault("n1")
    site.run(10)
    lose(site, backup)
    site.run(60, step_s=5)
    assert "n1" in (site.book.paused or "")
    assert "n2" not in (site.book.paused or "")


def _drained_after_the_backup(site: Site, ago_s: float) -> MemoryStore:
    """The backup knows the incident and the planned drain, not that it was set."""
    site.fault("n1")
    site.turn()
    assert site.incident("n1").state is _S.OPEN
    assert isinstance(site.store, MemoryStore)
    backup = copy.deepcopy(site.store)
    site.run(ago_s)
    assert site.slurm.nodes["n1"].drain
    assert site.incident("n1").state is _S.REPAIRING
    return backup


@pytest.mark.parametrize("ago_s", [35, 2])
def test_a_backup_from_before_a_drain_pauses_too_and_names_the_node(ago_s: float) -> None:
    """Also where the drain is from a moment before the daemons were stopped."""
    site = Site(3)
    backup = _drained_after_the_backup(site, ago_s)
    calls, launched = list(site.slurm.calls), site.provider.candidates()
    lose(site, backup)
    site.run(60, step_s=5)
    assert "this store has no record of: n1 (" in (site.book.paused or "")
    assert (site.slurm.calls, site.provider.candidates()) == (calls, launched), (
        "nothing is done until an operator has looked"
    )
    site.operate("resume")
    site.run(900, step_s=5)
    assert site.book.paused is None, "it is not paused again"
    assert (site.incident("n1").state, site.slurm.nodes["n1"].drain) == (_S.CLOSED, False)
    assert len(site.provider.live()) == 3


def test_a_drain_since_the_backup_for_what_was_only_a_warning_is_an_operators() -> None:
    site = Site(3)
    site.fault("n1", severity=Severity.WARNING, sticky=True)
    site.run(2)
    assert site.incident("n1").state is _S.WATCHING
    assert isinstance(site.store, MemoryStore)
    backup = copy.deepcopy(site.store)
    site.fault("n1")
    site.run(35)
    assert site.slurm.nodes["n1"].drain
    lose(site, backup)
    site.run(60, step_s=5)
    assert "this store has no record of: n1 (" in (site.book.paused or "")
    site.operate("resume")
    site.run(60, step_s=5)
    assert (site.book.paused, site.incident("n1").state) == (None, _S.AWAITING_HUMAN)
    site.slurm.operator_resumes("n1")
    site.run(5)
    assert site.incident("n1").state is _S.CLOSED


def test_a_drain_of_this_moment_is_no_sign_of_a_loss() -> None:
    """The store may have been read before its step was begun, and Slurm after."""
    site = Site(3)
    site.run(2)
    site.fault("n1")
    site.turn()
    incident = site.incident("n1")
    site.slurm.operator_drains("n1", f"holdfast[{incident.id}]: {incident.headline}", user="slurm")
    site.turn()
    assert site.book.paused is None


def test_a_restart_with_the_same_store_goes_on() -> None:
    site = in_the_middle()
    assert isinstance(site.store, MemoryStore)
    lose(site, site.store)
    site.run(300, step_s=5)
    assert (site.book.paused, site.incident("n1").state) == (None, _S.CLOSED)


def test_faults_after_the_loss_are_recorded_and_wait_for_the_operator() -> None:
    site = in_the_middle()
    lose(site)
    site.run(40, step_s=5)
    site.fault("n3")
    site.run(60, step_s=5)
    assert site.incident("n3").state is _S.OPEN
    assert not site.slurm.nodes["n3"].drain
    site.operate("resume")
    site.run(10)
    assert site.slurm.nodes["n3"].drain


def test_who_only_observes_is_not_paused() -> None:
    site = in_the_middle()
    site.policy = replace(site.policy, mode=Mode.OBSERVE)
    lose(site)
    site.run(60, step_s=5)
    assert (site.book.paused, site.incident("n1").check) == (None, "store.adopted")


def test_foreign_drains_and_our_spare_pool_are_no_sign_of_a_loss() -> None:
    site = Site(3, spares=("n3",), warm=False)
    site.slurm.operator_drains("n2")
    site.run(60, step_s=5)
    assert site.book.paused is None


# Orphaned machines: unknown to the store

MACHINE = Instance("i-9", "n1", "running", launched_at=EPOCH, incident=INCIDENT)
BEGUN = Incident(
    INCIDENT, "n1", "i-1", "boot", _S.REPAIRING, Severity.FATAL, Remedy.REPLACE, "gpu.xid", "gpu.xid 79", EPOCH, EPOCH
)
OVER = replace(BEGUN, state=_S.CLOSED, closed_at=EPOCH)


def world(
    machine: Instance, incident: Incident | None, *, after_s: float = GRACE_S + 1, error: str = "", serves: str = "i-1"
) -> World:
    now = EPOCH + timedelta(seconds=after_s)
    book = Book(
        incidents={incident.id: incident} if incident is not None else {},
        nodes={"n1": NodeRecord("n1", serves)},
        provider=ProviderView("sim", FULL, now, on_trial=(machine,), error=error),
    )
    return World(now, Policy(), book, None)


@pytest.mark.parametrize(
    ("seen", "planned"),
    [
        pytest.param(world(MACHINE, BEGUN), None, id="its incident is open"),
        pytest.param(world(MACHINE, OVER), Terminate, id="ours, and over"),
        pytest.param(world(MACHINE, OVER, after_s=GRACE_S - 1), None, id="over a moment ago"),
        pytest.param(world(MACHINE, OVER, serves="i-9"), None, id="it serves"),
        pytest.param(world(MACHINE, replace(OVER, node="n2")), Notify, id="for another node than its incident's"),
        pytest.param(world(MACHINE, None), Notify, id="an incident that nobody knows"),  # word: a test's id
        pytest.param(world(MACHINE, None, after_s=60), None, id="launched a moment ago"),
        pytest.param(world(replace(MACHINE, incident=""), None), Notify, id="without an incident"),
        pytest.param(
            world(replace(MACHINE, launched_at=None), None),
            None,
            id="nobody knows when it was launched",  # word: a test's id
        ),
        pytest.param(world(MACHINE, OVER, error="throttled"), None, id="the provider's view is an old one"),
    ],
)
def test_what_becomes_of_a_machine_on_trial(seen: World, planned: type[object] | None) -> None:
    kinds = [type(proposal.action) for proposal in orphans(seen).proposals]
    assert kinds == ([planned] if planned is not None else [])


@pytest.mark.parametrize("state", [s for s in IntentState if s is not IntentState.WITHHELD])
def test_a_machine_that_may_have_been_given_a_name_is_left_alone(state: IntentState) -> None:
    seen = world(MACHINE, OVER)
    named = Intent(f"{INCIDENT}/Assign/i-9/1", INCIDENT, Assign("i-9", "n1"), "", 1, state, EPOCH)
    seen = replace(seen, book=replace(seen.book, intents={named.key: named}))
    assert orphans(seen).proposals == ()


def test_a_human_is_told_of_a_machine_that_nobody_knows_and_again_a_day_later() -> None:
    site = Site(2)
    site.provider.launch("n1", incident="1kjmmb3pg00z", token="of-another-life")
    site.run(86_400, step_s=300)
    told = [text for text in site.notices.sent if "serves nothing" in text]
    assert told == ["i-0003 runs and serves nothing"]
    site.run(86_400, step_s=300)
    told = [text for text in site.notices.sent if "serves nothing" in text]
    assert told == ["i-0003 runs and serves nothing"] * 2, "notify.repeat_s: it still needs an operator"
    assert (site.provider.candidates(), site.provider.terminated) == ({"i-0003"}, {})


def test_a_launch_whose_answer_never_came_leaves_no_machine_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """The order was carried out, and the incident was over before it was requested again."""
    site = Site(2)
    launch = site.provider.launch

    def unheard(node: str, *, incident: str, token: str) -> Instance:
        launch(node, incident=incident, token=token)
        raise Unavailable("no answer")

    monkeypatch.setattr(site.provider, "launch", unheard)
    site.fault("n1")
    site.run(5)
    assert len(site.provider.candidates()) == 1
    site.operate("close", site.incident("n1").id)
    site.slurm.operator_resumes("n1")
    site.run(1500, step_s=10)
    assert site.provider.candidates() == set(), site.story()
