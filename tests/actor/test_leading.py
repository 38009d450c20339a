"""A step that hangs longer than the lease is aborted under the next leader."""

from __future__ import annotations

import inspect

import pytest

from holdfast.model.actions.action import IntentState
from holdfast.ports import Provider, Scheduler, reading
from support.simulated import Site

CHANGES = {
    *(
        "drain",
        "undrain",
        "set_instance_id",
        "set_down",
        "requeue",
        "release",
        "hold",
        "set_excluded_nodes",
        "set_job_reservation",
    ),
    *("set_num_nodes", "set_array_throttle", "delay_start"),
    *(
        "tell_owner",
        "create_reservation",
        "set_reservation_nodes",
        "delete_reservation",
        "launch",
        "terminate",
        "assign",
        "reboot",
        "replace",
        "report_fault",
        "stop_start",
        "power_down",
        "power_up",
    ),
}


@pytest.mark.parametrize("taken_over", [False, True])
def test_the_second_call_of_a_step_is_not_made_once_the_lease_is_lost(taken_over: bool) -> None:
    """A release sets the exclusions, hangs, and releases the job: the release of the job belongs to the next leader."""
    site = Site(4)
    job = site.slurm.submit(2, comment="holdfast", exclusive=True)
    plain = site.slurm.set_excluded_nodes
    hung: list[float] = []

    def hangs(job_id: int, nodes: tuple[str, ...]) -> None:
        plain(job_id, nodes)
        if not hung:
            hung.append(site.clock.elapsed_s)
            site.clock.advance(20.0)
            if taken_over:
                assert site.store.take_lease("other", site.clock.now(), 15.0) is not None

    site.slurm.set_excluded_nodes = hangs  # type: ignore[method-assign]
    site.fault("n1")
    for _ in range(10):
        site.run(1)
        if hung:
            break
    assert hung
    if taken_over:
        assert ("release", str(job.job_id)) not in site.slurm.calls
        assert [i.state for i in site.store.intents() if "/Release/" in i.key] == [IntentState.STARTED]
    site.run(60)
    assert (job.state, job.restarts) == ("RUNNING", 1), "the next leader reads the state, and ends the step"
    assert site.slurm.calls.count(("release", str(job.job_id))) == 1


def test_every_call_is_known_to_read_or_to_change() -> None:
    ports = {name for port in (Scheduler, Provider) for name, _ in inspect.getmembers(port) if not name.startswith("_")}
    assert ports - reading(Scheduler) - reading(Provider) == CHANGES
