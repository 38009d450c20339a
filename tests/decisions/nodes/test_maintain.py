"""``holdfast maintain``: Holdfast's own maintenance windows."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from holdfast.api.shown.views import node_shape
from holdfast.model.errors import NotFound, Rejected
from holdfast.model.incidents.incident import IncidentState
from holdfast.model.operators.maintenance import Window
from holdfast.model.policies.policy import Mode
from holdfast.model.slurm.hostlist import expand
from holdfast.ports import Operation
from support.simulated import Site
from support.simulated.site import POLICY
from support.simulated.slurm import SimNode

NAME = "holdfast-maint-0000000000aa"


def _maintain(site: Site, *nodes: str, hours: float = 4.0) -> None:
    now = site.clock.now()
    window = Window("0000000000aa", nodes, now, now + timedelta(hours=hours), "ops", "swap the switch")
    site.store.operate(Operation("maintain", "ops", ",".join(nodes), "swap the switch", window=window), now)


def _end(site: Site, *nodes: str) -> None:
    site.store.operate(Operation("end_maintenance", "ops", ",".join(nodes), nodes=nodes), site.clock.now())


@pytest.mark.parametrize("mode", [Mode.ACT, Mode.OBSERVE])
def test_a_window_is_a_maint_reservation_until_it_ends(mode: Mode) -> None:
    site = Site(4, policy=replace(POLICY, mode=mode))
    _maintain(site, "n1", "n2", hours=1)
    site.run(2)
    shown = site.slurm.reservations[NAME]
    assert (shown.nodes, "MAINT" in shown.flags, shown.users) == (("n1", "n2"), True, ("root",))
    site.run(3700, step_s=10)
    assert NAME not in site.slurm.reservations


def test_nothing_is_done_in_a_window_of_holdfasts_own() -> None:
    site = Site(4)
    _maintain(site, "n1")
    site.fault("n1")
    site.machine("n2").powered = True
    site.run(600, step_s=5)
    assert [call for call in site.slurm.calls if call[1] != NAME] == []
    incident = site.incident("n1")
    assert incident.state is IncidentState.OPEN
    assert "maintenance by ops (swap the switch) until" in incident.note


def test_it_holds_at_once_also_while_slurm_takes_no_reservation(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(4)

    def refuses(*_args: object, **_more: object) -> None:
        raise Rejected("no")

    monkeypatch.setattr(site.slurm, "create_reservation", refuses)
    _maintain(site, "n1")
    site.machine("n1").powered = False
    site.run(600, step_s=5)
    assert (site.slurm.calls, site.provider.terminated, site.store.incidents(node="n1")) == ([], {}, ())


def test_it_ends_node_by_node() -> None:
    site = Site(4)
    _maintain(site, "n1", "n2")
    site.run(2)
    _end(site, "n2")
    site.run(2)
    assert site.slurm.reservations[NAME].nodes == ("n1",)
    site.fault("n2")
    site.run(5)
    assert ("drain", "n2") in site.slurm.calls
    _end(site, "n1")
    site.run(2)
    assert NAME not in site.slurm.reservations
    with pytest.raises(NotFound, match="holds n1"):
        _end(site, "n1")


def test_a_window_between_a_decision_and_its_step_holds_the_step() -> None:
    site = Site(4)

    def begin(intent: object, at: str) -> None:
        if at == "planned" and not site.book.windows:
            _maintain(site, "n1")

    site.at_boundary = begin
    site.fault("n1")
    site.run(60)
    assert site.provider.tokens == {}
    assert "replace" not in site.kinds()


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n7", ("n7",)),
        ("n[1-3]", ("n1", "n2", "n3")),
        ("n[08-10],m1", ("n08", "n09", "n10", "m1")),
        ("r[1,3]-gpu", ("r1-gpu", "r3-gpu")),
        ("n1,n1", ("n1",)),
    ],
)
def test_host_lists(text: str, names: tuple[str, ...]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize(
    "text",
    ["", " ", "n[", "n[]", "n[3-1]", "n[1-99999999]", "n1,,n2", "n1;reboot", "n[a-b]", "n[1-2][3-4]", "n 1", ",n1"],
)
def test_wrong_host_lists_are_refused_in_one_line(text: str) -> None:
    with pytest.raises(Rejected) as refused:
        expand(text)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("hours", [0.0, -1.0, 24.0 * 31])
def test_windows_without_an_end_in_reach_are_refused(hours: float) -> None:
    site = Site(1)
    with pytest.raises(Rejected):
        _maintain(site, "n1", hours=hours)


@pytest.mark.parametrize("fault", [False, True])
def test_a_node_without_power_after_its_window_says_why_nothing_is_done(fault: bool) -> None:
    """``holdfast nodes`` shows the time that it has to report, in plain words."""
    site = Site(4)
    _maintain(site, "n1", hours=0.2)
    site.run(5)
    if fault:
        site.fault("n1")
        site.run(5)
    site.machine("n1").powered = False
    seen: list[str] = []
    for _ in range(200):
        site.run(10, step_s=5)
        shape = node_shape("n1", site.loop.world, site.agents.registry.views(), site.clock.now())
        assert shape is not None
        shown = shape.why or shape.reason  # what the column WHY shows
        seen += [shown] if seen[-1:] != [shown] else []
        if "node.dead" in shape.why or site.slurm.nodes["n1"].drain:
            break
    left = [
        "hands off: maintenance by ops (swap the switch) until 2026-03-01 12:12 UTC; recorded, nothing is done",
        "hands off: its maintenance or reboot has ended, and it has time to report until 2026-03-01 12:27 UTC; "
        "recorded, nothing is done",
    ]
    fallen = "; gpu.xid 79 GPU-i-0001-3: GPU has fallen off the bus"
    expected = [left[0] + fallen, left[1] + fallen] if fault else left
    assert seen[: len(expected)] == expected
    assert all(seen), "the column WHY is never empty while nothing is done"


def _out(site: Site, name: str) -> SimNode:
    """Out of slurm.conf: Slurm takes it out of its reservations, too (seen on 22.05)."""
    node = site.slurm.take_out(name)
    held = site.slurm.reservations[NAME]
    site.slurm.reservations[NAME] = replace(held, nodes=tuple(n for n in held.nodes if n != name))
    return node


def test_a_node_of_a_window_leaves_slurm_conf_and_comes_back() -> None:
    site = Site(6)
    _maintain(site, "n1", "n2", "n3")
    site.run(2)
    for _ in range(2):  # also the second time within one hour
        node = _out(site, "n2")
        site.run(60)
        assert site.slurm.reservations[NAME].nodes == ("n1", "n3")
        site.slurm.put_in(node)
        site.run(90)
        assert site.slurm.reservations[NAME].nodes == ("n1", "n2", "n3")
    _out(site, "n2")
    _end(site, "n1")
    site.run(5)
    assert site.slurm.reservations[NAME].nodes == ("n3",)
    assert site.notices.sent == []


def test_a_reservation_that_cannot_be_kept_is_told_of_once(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(4)

    def refuse(*_: object, **__: object) -> None:
        raise Rejected("Access/permission denied")

    monkeypatch.setattr(site.slurm, "create_reservation", refuse)
    _maintain(site, "n1")
    site.run(300)
    told = [text for text in site.notices.sent if "is not as ordered" in text]
    assert told == ["the reservation of the maintenance by ops is not as ordered: Access/permission denied"]
